package dev.thunderhead;

/**
 * A change may have been done or not. Look at the data before you repeat it.
 *
 * <p>The client never does a change twice by itself. But a program that repeats the change does a
 * new one: read the object first, or make the change conditional on the version.
 */
public class OutcomeUnknownException extends ThunderheadException {
  private static final long serialVersionUID = 1;

  OutcomeUnknownException(int code, String text) {
    super(code, text);
  }
}
