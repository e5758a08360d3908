package dev.thunderhead;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.OptionalLong;

/** Divides many operations into calls whose results fit into a buffer. */
final class Batches {
  /** Values of so many operations fit into an array. */
  private static final int COUNT_MAX = 256;

  /** A call ends with the operation that reaches so many bytes. */
  private static final int BYTES_MAX = 4 << 20;

  private Batches() {}

  static List<byte[]> utf8(String[] texts) {
    Objects.requireNonNull(texts, "the keys are null");
    return Arrays.stream(texts).map(text -> Arguments.utf8(text, "a key")).toList();
  }

  static List<Call.GetMany> gets(long table, Collection<byte[]> keys) {
    byte[][] all = keys(keys);
    List<Call.GetMany> calls = new ArrayList<>();
    for (int from = 0, to; from < all.length; from = to) {
      to = end(all, null, from);
      calls.add(new Call.GetMany(table, Arrays.copyOfRange(all, from, to)));
    }
    return calls;
  }

  static List<Call.DeleteMany> deletes(long table, Collection<byte[]> keys) {
    byte[][] all = keys(keys);
    List<Call.DeleteMany> calls = new ArrayList<>();
    for (int from = 0, to; from < all.length; from = to) {
      to = end(all, null, from);
      calls.add(new Call.DeleteMany(table, Arrays.copyOfRange(all, from, to)));
    }
    return calls;
  }

  static List<Call.PutMany> puts(long table, long ttl, Collection<Entry> entries) {
    Objects.requireNonNull(entries, "the entries are null");
    Entry[] all = entries.toArray(Entry[]::new);
    byte[][] keys = new byte[all.length][];
    byte[][] values = new byte[all.length][];
    for (int at = 0; at < all.length; at++) {
      Objects.requireNonNull(all[at], "an entry is null");
      keys[at] = Arguments.key(all[at].key());
      values[at] = Arguments.value(all[at].value().bytes());
    }
    List<Call.PutMany> calls = new ArrayList<>();
    for (int from = 0, to; from < all.length; from = to) {
      to = end(keys, values, from);
      calls.add(
          new Call.PutMany(
              table,
              ttl,
              Arrays.copyOfRange(keys, from, to),
              Arrays.copyOfRange(values, from, to)));
    }
    return calls;
  }

  private static byte[][] keys(Collection<byte[]> keys) {
    Objects.requireNonNull(keys, "the keys are null");
    byte[][] all = keys.toArray(byte[][]::new);
    for (byte[] key : all) {
      Arguments.key(key);
    }
    return all;
  }

  private static int end(byte[][] keys, byte[][] values, int from) {
    int bytes = 0;
    int at = from;
    while (at < keys.length && at - from < COUNT_MAX && bytes < BYTES_MAX) {
      bytes += keys[at].length + (values == null ? 0 : values[at].length);
      at++;
    }
    return at;
  }

  /** Collects the results of some calls. */
  static final class Collector<T> {
    private final boolean reads;
    private final List<T> values = new ArrayList<>();
    private final List<ThunderheadException> errors = new ArrayList<>();

    /** For reads, or else for updates. */
    Collector(boolean reads) {
      this.reads = reads;
    }

    void add(Call.Many.Results<T> results) {
      values.addAll(results.values());
      errors.addAll(results.errors());
    }

    void addFailure(int count, ThunderheadException failure) {
      for (int at = 0; at < count; at++) {
        values.add(null);
        errors.add(failure);
      }
    }

    /** Returns the results, or throws if an operation failed. */
    List<T> finish() {
      ThunderheadException[] all = errors.toArray(ThunderheadException[]::new);
      for (ThunderheadException error : all) {
        if (error != null) {
          long[] versions = values.stream().mapToLong(Collector::version).toArray();
          throw Errors.ofMany(all, versions, reads);
        }
      }
      return values;
    }

    /** Returns the version that an update has as its result, or 0. */
    private static long version(Object value) {
      if (value instanceof OptionalLong deleted) {
        return deleted.orElse(0);
      }
      return value instanceof Long written ? written : 0;
    }
  }
}
