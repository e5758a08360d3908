package dev.thunderhead;

/**
 * The result of an increment.
 *
 * @param number the sum: a {@link Long} or a {@link Double}, as the number that was added
 * @param version the object's new version
 * @param <T> the type of the number
 */
public record Sum<T extends Number>(T number, long version) {
  @Override
  public String toString() {
    return number + ", version " + Long.toUnsignedString(version);
  }
}
