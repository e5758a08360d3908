package dev.thunderhead;

import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * Some of many updates failed. {@link #errors()} says which ones, and of which kind each error is.
 * {@link #versions()} has the results of the other ones.
 */
public final class PartlyDoneException extends OutcomeUnknownException {
  private static final long serialVersionUID = 1;

  /** The errors in the order of the updates; null for an update that was done. */
  private final ThunderheadException[] errors;

  /** The versions in the order of the updates; 0 for none, as no object has this version. */
  private final long[] versions;

  PartlyDoneException(int code, String text, ThunderheadException[] errors, long[] versions) {
    super(code, text);
    this.errors = errors;
    this.versions = versions;
  }

  /**
   * Returns the errors in the order of the updates.
   *
   * @return for each update its error, or nothing if it was done
   */
  public List<Optional<ThunderheadException>> errors() {
    return Arrays.stream(errors).map(Optional::ofNullable).toList();
  }

  /**
   * Returns the versions in the order of the updates.
   *
   * @return for each update that was done, the version that the put wrote or that the deleted
   *     object had; nothing for an update that failed, and if there was no object to delete
   */
  public List<OptionalLong> versions() {
    return Arrays.stream(versions)
        .mapToObj(version -> version == 0 ? OptionalLong.empty() : OptionalLong.of(version))
        .toList();
  }
}
