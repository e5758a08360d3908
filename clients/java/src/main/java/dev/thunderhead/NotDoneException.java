package dev.thunderhead;

/**
 * Nothing was changed. The message says why, and what to do next.
 */
public class NotDoneException extends ThunderheadException {
  private static final long serialVersionUID = 1;

  NotDoneException(int code, String text) {
    super(code, text);
  }
}
