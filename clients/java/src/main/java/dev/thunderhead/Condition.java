package dev.thunderhead;

/**
 * A condition on the version of an object, which must hold for an update to be done.
 *
 * <p>The check and the update are one atomic step. Versions of a key only grow, also over deletes.
 */
public final class Condition {
  private static final Condition ALWAYS = new Condition(0, 0);
  private static final Condition ABSENT = new Condition(1, 0);
  private static final Condition PRESENT = new Condition(2, 0);

  final int kind;
  final long version;

  private Condition(int kind, long version) {
    this.kind = kind;
    this.version = version;
  }

  /**
   * Holds always.
   *
   * @return the condition
   */
  public static Condition always() {
    return ALWAYS;
  }

  /**
   * Holds if there is no such object.
   *
   * @return the condition
   */
  public static Condition absent() {
    return ABSENT;
  }

  /**
   * Holds if the object exists.
   *
   * @return the condition
   */
  public static Condition present() {
    return PRESENT;
  }

  /**
   * Holds if the object has this version, so it has not changed since it was read.
   *
   * @param version the version, as {@link Value#version()} or a put returned it
   * @return the condition
   */
  public static Condition versionIs(long version) {
    return new Condition(3, version);
  }

  /**
   * Holds if the object does not exist or has a lower version.
   *
   * @param version the version
   * @return the condition
   */
  public static Condition versionBelow(long version) {
    return new Condition(4, version);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Condition that && kind == that.kind && version == that.version;
  }

  @Override
  public int hashCode() {
    return 31 * kind + Long.hashCode(version);
  }

  @Override
  public String toString() {
    return switch (kind) {
      case 0 -> "always";
      case 1 -> "absent";
      case 2 -> "present";
      case 3 -> "version is " + Long.toUnsignedString(version);
      default -> "version below " + Long.toUnsignedString(version);
    };
  }
}
