package dev.thunderhead;

/**
 * The object to increment is not a number, or a number of the other kind (whole or floating-point).
 */
public final class NotANumberException extends NotDoneException {
  private static final long serialVersionUID = 1;

  /** The version of the object. */
  private final long version;

  NotANumberException(int code, String text, long version) {
    super(code, text);
    this.version = version;
  }

  /**
   * Returns the version that the object has.
   *
   * @return the version
   */
  public long version() {
    return version;
  }
}
