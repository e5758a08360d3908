package dev.thunderhead;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;

/** An object: its key and its value. */
public final class Entry {
  private final byte[] key;
  private final Value value;

  Entry(byte[] key, Value value) {
    this.key = key;
    this.value = value;
  }

  /**
   * Makes an entry to put. It has no version yet.
   *
   * @param key the key
   * @param value the value
   * @return the entry
   */
  public static Entry of(byte[] key, byte[] value) {
    return new Entry(
        Objects.requireNonNull(key, "the key is null"),
        new Value(Objects.requireNonNull(value, "the value is null"), 0));
  }

  /**
   * Makes an entry to put, of texts that become UTF-8. It has no version yet.
   *
   * @param key the key
   * @param value the value
   * @return the entry
   */
  public static Entry of(String key, String value) {
    return of(Arguments.utf8(key, "the key"), Arguments.utf8(value, "the value"));
  }

  /**
   * Returns the key.
   *
   * @return the array of this entry itself, not a copy
   */
  public byte[] key() {
    return key;
  }

  /**
   * Returns the key as text in UTF-8.
   *
   * @return the text
   */
  public String keyText() {
    return new String(key, StandardCharsets.UTF_8);
  }

  /**
   * Returns the value.
   *
   * @return the value
   */
  public Value value() {
    return value;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Entry that && Arrays.equals(key, that.key) && value.equals(that.value);
  }

  @Override
  public int hashCode() {
    return 31 * Arrays.hashCode(key) + value.hashCode();
  }

  @Override
  public String toString() {
    return key.length + " bytes of key, " + value;
  }
}
