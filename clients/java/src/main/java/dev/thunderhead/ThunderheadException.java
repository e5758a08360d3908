package dev.thunderhead;

/**
 * An operation failed. Each exception is either a {@link NotDoneException} or an {@link
 * OutcomeUnknownException}.
 */
public abstract class ThunderheadException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** The stable number of the error. */
  private final int code;

  ThunderheadException(int code, String text) {
    super(text);
    this.code = code;
  }

  /**
   * Returns a stable number for logs. It is the same in the clients for all languages, and is never
   * reused for another error.
   *
   * @return the number
   */
  public final int code() {
    return code;
  }

  /** Replaces the stack by that of this thread. The exception came from a future. */
  final ThunderheadException here() {
    StackTraceElement[] stack = Thread.currentThread().getStackTrace();
    // The first two are this method and `getStackTrace`.
    setStackTrace(java.util.Arrays.copyOfRange(stack, Math.min(2, stack.length), stack.length));
    return this;
  }
}
