package dev.thunderhead;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** The bytes and the version of an object. */
public final class Value {
  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  private final byte[] bytes;
  private final long version;

  Value(byte[] bytes, long version) {
    this.bytes = bytes;
    this.version = version;
  }

  /**
   * Returns the bytes.
   *
   * @return the array of this value itself, not a copy
   */
  public byte[] bytes() {
    return bytes;
  }

  /**
   * Returns the version. Each update gives an object a higher version than it ever had.
   *
   * @return the version
   */
  public long version() {
    return version;
  }

  /**
   * Returns the bytes as text in UTF-8. Bytes that are not UTF-8 become the replacement character.
   *
   * @return the text
   */
  public String text() {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /**
   * Returns the whole number that {@code putNumber} or {@code increment} wrote.
   *
   * @return the number
   * @throws IllegalStateException if the value has not 8 bytes, so it is not a number
   */
  public long asLong() {
    if (bytes.length != 8) {
      throw new IllegalStateException(
          "the value has " + bytes.length + " bytes and a number has 8; read it with bytes()");
    }
    return (long) LONG.get(bytes, 0);
  }

  /**
   * Returns the floating-point number that {@code putNumber} or {@code increment} wrote.
   *
   * @return the number
   * @throws IllegalStateException if the value has not 8 bytes, so it is not a number
   */
  public double asDouble() {
    return Double.longBitsToDouble(asLong());
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Value that
        && version == that.version
        && Arrays.equals(bytes, that.bytes);
  }

  @Override
  public int hashCode() {
    return 31 * Arrays.hashCode(bytes) + Long.hashCode(version);
  }

  @Override
  public String toString() {
    return bytes.length + " bytes, version " + Long.toUnsignedString(version);
  }
}
