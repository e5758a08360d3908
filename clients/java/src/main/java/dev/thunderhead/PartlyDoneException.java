package dev.thunderhead;

import java.util.List;
import java.util.Optional;

/**
 * Some of many updates failed. {@link #errors()} says which ones, and of which kind each error is.
 */
public final class PartlyDoneException extends OutcomeUnknownException {
  private static final long serialVersionUID = 1;

  /** The errors in the order of the updates; null for an update that was done. */
  private final ThunderheadException[] errors;

  PartlyDoneException(int code, String text, ThunderheadException[] errors) {
    super(code, text);
    this.errors = errors;
  }

  /**
   * Returns the errors in the order of the updates.
   *
   * @return for each update its error, or nothing if it was done
   */
  public List<Optional<ThunderheadException>> errors() {
    return java.util.Arrays.stream(errors).map(Optional::ofNullable).toList();
  }
}
