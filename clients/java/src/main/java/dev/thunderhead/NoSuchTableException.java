package dev.thunderhead;

/**
 * There is no such table: it was never created, or it has been dropped.
 */
public final class NoSuchTableException extends NotDoneException {
  private static final long serialVersionUID = 1;

  NoSuchTableException(int code, String text) {
    super(code, text);
  }
}
