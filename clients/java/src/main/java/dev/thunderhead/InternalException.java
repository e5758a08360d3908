package dev.thunderhead;

/** The client has a bug. An update may have been done or not. Please report the message. */
public final class InternalException extends OutcomeUnknownException {
  private static final long serialVersionUID = 1;

  // The native library makes it.
  InternalException(String text) {
    super(Errors.INTERNAL, text + "; please report it, and look at the data before you go on");
  }
}
