package dev.thunderhead;

/**
 * The operation was ended before its deadline and was not done. The thread that waited for it was
 * interrupted; its interrupt flag is still set.
 */
public final class CancelledException extends NotDoneException {
  private static final long serialVersionUID = 1;

  CancelledException(int code, String text) {
    super(code, text);
  }
}
