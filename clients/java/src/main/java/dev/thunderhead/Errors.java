package dev.thunderhead;

/** Makes exceptions of the errors of the native library. */
final class Errors {
  static final int BAD_URL = 0;
  static final int CONDITION_FAILED = 1;
  static final int NO_SUCH_TABLE_ID = 2;
  static final int UNKNOWN = 8;
  static final int CLOSED = 12;
  static final int CANCELLED = 20;
  static final int FORKED = 21;
  static final int NOT_A_NUMBER = 1013;
  static final int TABLE_EXISTS = 1019;
  static final int NO_SUCH_TABLE = 1020;
  static final int INTERNAL = 2004;

  private Errors() {}

  /** Returns the exception of an error. `text` is a sentence that says what to do next. */
  static ThunderheadException of(int code, boolean isUnknown, long version, String text) {
    if (isUnknown) {
      return new OutcomeUnknownException(code, text);
    }
    return switch (code) {
      case CONDITION_FAILED ->
          new ConditionFailedException(code, text + "; read it and decide again", version);
      case NOT_A_NUMBER -> new NotANumberException(code, text, version);
      case NO_SUCH_TABLE_ID -> new NoSuchTableException(code, text);
      case NO_SUCH_TABLE -> new NoSuchTableException(code, text);
      case TABLE_EXISTS -> new TableExistsException(code, text + "; table(name) returns it");
      case CLOSED, FORKED -> closed(code);
      case CANCELLED -> new CancelledException(code, text + "; begin it again if it is needed");
      // The errors of the core with these codes say that the deadline passed.
      case 4, 5, 6, 7, 9, 13, 14, 15, 16, 17, 18, 19 -> new TimedOutException(code, text);
      default -> new NotDoneException(code, text);
    };
  }

  static ClosedException closed() {
    return closed(CLOSED);
  }

  private static ClosedException closed(int code) {
    return new ClosedException(
        code, "the client is closed; open another one with Thunderhead.connect");
  }

  static CancelledException interrupted() {
    return new CancelledException(
        CANCELLED,
        "the thread was interrupted and nothing was done; begin it again if it is needed");
  }

  static TimedOutException noLane() {
    // The code of a server that is too busy.
    return new TimedOutException(
        7, "too many threads use this client at once; use async(), or set a longer deadline");
  }

  static NoSuchTableException noTable(String name) {
    return new NoSuchTableException(
        NO_SUCH_TABLE, "there is no table " + name + "; create it first, or check its name");
  }

  /**
   * Returns the exception for many operations of which some failed: that of the first error if
   * nothing was changed, otherwise a PartlyDoneException.
   */
  static ThunderheadException ofMany(
      ThunderheadException[] errors, long[] versions, boolean reads) {
    ThunderheadException first = null;
    int failed = 0;
    boolean isUnknown = false;
    for (ThunderheadException error : errors) {
      if (error != null) {
        first = first == null ? error : first;
        failed++;
        isUnknown |= error instanceof OutcomeUnknownException;
      }
    }
    if (reads || (failed == errors.length && !isUnknown)) {
      return first;
    }
    String text =
        failed + " of " + errors.length + " updates failed, and errors() says which; the first: ";
    return new PartlyDoneException(first.code(), text + first.getMessage(), errors, versions);
  }
}
