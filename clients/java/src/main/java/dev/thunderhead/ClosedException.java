package dev.thunderhead;

/**
 * The client was closed before the operation was sent.
 */
public final class ClosedException extends NotDoneException {
  private static final long serialVersionUID = 1;

  ClosedException(int code, String text) {
    super(code, text);
  }
}
