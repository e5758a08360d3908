package dev.thunderhead;

/**
 * There is a table of this name already.
 */
public final class TableExistsException extends NotDoneException {
  private static final long serialVersionUID = 1;

  TableExistsException(int code, String text) {
    super(code, text);
  }
}
