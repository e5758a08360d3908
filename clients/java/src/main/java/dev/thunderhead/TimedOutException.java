package dev.thunderhead;

/**
 * The deadline passed first, and nothing was changed. The message names the obstacle.
 */
public final class TimedOutException extends NotDoneException {
  private static final long serialVersionUID = 1;

  TimedOutException(int code, String text) {
    super(code, text);
  }
}
