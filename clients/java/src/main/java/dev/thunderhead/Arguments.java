package dev.thunderhead;

import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Objects;

/** Checks of arguments. */
final class Arguments {
  static final int KEY_BYTES_MAX = 64 << 10;
  static final int VALUE_BYTES_MAX = 1 << 20;
  private static final int NAME_BYTES_MAX = 255;
  private static final Duration DEADLINE_MAX = Duration.ofDays(366);

  /** The number that stands for a life without an end. */
  static final long TTL_FOREVER = -1;

  private Arguments() {}

  static byte[] key(byte[] key) {
    Objects.requireNonNull(key, "the key is null");
    if (key.length == 0) {
      throw new IllegalArgumentException("the key is empty; give at least one byte");
    }
    if (key.length > KEY_BYTES_MAX) {
      throw tooLong("key", key.length, KEY_BYTES_MAX);
    }
    return key;
  }

  static byte[] value(byte[] value) {
    Objects.requireNonNull(value, "the value is null");
    if (value.length > VALUE_BYTES_MAX) {
      throw tooLong("value", value.length, VALUE_BYTES_MAX);
    }
    return value;
  }

  private static IllegalArgumentException tooLong(String name, int bytes, int most) {
    return new IllegalArgumentException(
        "the " + name + " has " + bytes + " bytes; at most " + most + " are allowed");
  }

  static Condition condition(Condition condition) {
    return Objects.requireNonNull(
        condition, "the condition is null; use put or delete for an update without a condition");
  }

  /** Encodes a text, which must be valid: two texts never become the same bytes. */
  static byte[] utf8(String text, String name) {
    Objects.requireNonNull(text, () -> name + " is null");
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    for (byte each : bytes) {
      // Half of a surrogate pair becomes a question mark, so only such texts need a closer look.
      if (each == '?') {
        check(text, name);
        break;
      }
    }
    return bytes;
  }

  private static void check(String text, String name) {
    try {
      StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
    } catch (CharacterCodingException error) {
      throw new IllegalArgumentException(
          name + " has half of a surrogate pair, which UTF-8 cannot have; pass bytes instead",
          error);
    }
  }

  static byte[] name(String name) {
    byte[] bytes = utf8(name, "the name of the table");
    boolean isBad = bytes.length == 0 || bytes.length > NAME_BYTES_MAX;
    if (isBad || name.chars().anyMatch(Arguments::isControl)) {
      throw new IllegalArgumentException(
          "a table's name has 1 to " + NAME_BYTES_MAX + " bytes and no control characters");
    }
    return bytes;
  }

  private static boolean isControl(int character) {
    return Character.getType(character) == Character.CONTROL;
  }

  /** Returns a time to live in milliseconds, rounded up, or {@link #TTL_FOREVER}. */
  static long ttl(Duration ttl) {
    Objects.requireNonNull(ttl, "the time to live is null");
    if (ttl.isNegative() || ttl.isZero()) {
      throw new IllegalArgumentException(
          "the time to live is " + ttl + "; it must be more than nothing");
    }
    if (ttl.equals(TableOptions.FOREVER)) {
      return TTL_FOREVER;
    }
    try {
      return ttl.plusNanos(999_999).toMillis();
    } catch (ArithmeticException tooLong) {
      return Long.MAX_VALUE;
    }
  }

  /** Returns the time to live of a number of milliseconds, or of {@link #TTL_FOREVER}. */
  static Duration ttlOf(long milliseconds) {
    return milliseconds < 0 ? TableOptions.FOREVER : Duration.ofMillis(milliseconds);
  }

  static long deadline(Duration deadline) {
    Objects.requireNonNull(deadline, "the deadline is null");
    if (deadline.isNegative() || deadline.isZero() || deadline.compareTo(DEADLINE_MAX) > 0) {
      throw new IllegalArgumentException(
          "the deadline is " + deadline + "; it must be more than nothing and at most a year");
    }
    return deadline.toNanos();
  }
}
