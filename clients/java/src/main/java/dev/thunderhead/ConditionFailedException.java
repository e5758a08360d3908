package dev.thunderhead;

/** The condition of an update does not hold, so nothing was changed. */
public final class ConditionFailedException extends NotDoneException {
  private static final long serialVersionUID = 1;

  /** The version of the object. */
  private final long version;

  ConditionFailedException(int code, String text, long version) {
    super(code, text);
    this.version = version;
  }

  /**
   * Returns the version that the object has.
   *
   * @return the version, or 0 if there is no such object
   */
  public long version() {
    return version;
  }
}
