package dev.thunderhead;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * A request that has one completion. {@code crates/bindings} describes the bytes of both.
 *
 * @param <T> the type of the result
 */
abstract class Call<T> {
  static final int READ = 0;
  static final int WRITE = 1;
  static final int DELETE = 2;
  static final int INCREMENT = 3;
  static final int WRITE_NUMBER = 4;
  static final int SET_EXPIRY = 5;
  static final int READ_EXPIRY = 6;

  /** The mark of an operation with a time to live. */
  private static final int HAS_TTL = 1 << 24;

  static final int CREATE_TABLE = 0;
  static final int DROP_TABLE = 1;
  static final int LOOK_UP = 2;
  static final int LIST = 3;
  static final int SPLIT = 4;
  static final int MIGRATE = 5;

  static final int HEAD_BYTES = 24;
  static final int OPERATION_BYTES = 28;

  /** The bytes of the options of a table. */
  private static final int OPTIONS_BYTES = 25;

  private static final byte[] NOTHING = {};

  private static final int CLASS_OPERATIONS = 0;
  private static final int CLASS_QUESTION = 1;
  private static final int CLASS_PAGE = 2;

  /** The kinds of results. */
  static final int ERROR = 0;

  static final int VALUE = 1;
  static final int ABSENT = 2;
  static final int CHANGED = 3;
  static final int SUM = 4;
  static final int TABLE = 5;
  static final int DONE = 6;
  static final int PAGE_END = 7;
  static final int LIVES = 8;

  /** Returns how many bytes the request has. */
  abstract int bytes();

  /** Puts the request into a buffer that has room for it. */
  abstract void put(ByteBuffer to, long tag, long deadline);

  /**
   * Takes the result out of a completion, whose head has been read. Throws the exception if the
   * result is an error.
   */
  abstract T take(ByteBuffer from, int results);

  /** Puts the head of a submission. */
  static void putHead(ByteBuffer to, long tag, long deadline, int kind, int count) {
    to.putLong(tag).putLong(deadline).putInt(kind).putInt(count);
  }

  /** Puts an operation. A time to live of 0 is none. */
  static void putOperation(
      ByteBuffer to, int kinds, long table, long version, long ttl, byte[] key, byte[] value) {
    to.putInt(ttl == 0 ? kinds : kinds | HAS_TTL);
    to.putInt(key.length).putInt(value.length).putLong(table).putLong(version);
    if (ttl != 0) {
      to.putLong(ttl);
    }
    to.put(key).put(value);
  }

  private static int operationBytes(long ttl, byte[] key, byte[] value) {
    return OPERATION_BYTES + (ttl == 0 ? 0 : 8) + key.length + value.length;
  }

  /** Reads the next result as an exception; its kind has been read. */
  static ThunderheadException takeError(ByteBuffer from) {
    boolean isUnknown = from.get() == 1;
    int code = Short.toUnsignedInt(from.getShort());
    int key = from.getInt();
    int length = from.getInt();
    long version = from.getLong();
    from.position(from.position() + key);
    byte[] text = new byte[length];
    from.get(text);
    return Errors.of(code, isUnknown, version, new String(text, StandardCharsets.UTF_8));
  }

  /** Reads the rest of a result as a value; its kind has been read. */
  static Value takeValue(ByteBuffer from) {
    int at = from.position();
    int key = from.getInt(at + 3);
    byte[] value = new byte[from.getInt(at + 7)];
    long version = from.getLong(at + 11);
    from.position(at + 19 + key);
    from.get(value);
    return new Value(value, version);
  }

  /** Reads the rest of a result that has only a version. */
  static long takeVersion(ByteBuffer from) {
    int at = from.position();
    long version = from.getLong(at + 11);
    from.position(at + 19 + from.getInt(at + 3) + from.getInt(at + 7));
    return version;
  }

  /** Skips results. */
  static void skip(ByteBuffer from, int results) {
    for (int each = 0; each < results; each++) {
      int at = from.position();
      from.position(at + 20 + from.getInt(at + 4) + from.getInt(at + 8));
    }
  }

  static RuntimeException misunderstood(int kind) {
    return new InternalException("the client has a bug: it does not know the result " + kind);
  }

  /** One operation on one object. */
  abstract static class Single<T> extends Call<T> {
    private final int kinds;
    private final long table;
    private final long version;
    private final long ttl;
    private final byte[] key;
    private final byte[] value;

    Single(int kind, Condition condition, boolean isFloat, long table, byte[] key, byte[] value) {
      this(kind, condition, isFloat, table, 0, key, value);
    }

    Single(
        int kind,
        Condition condition,
        boolean isFloat,
        long table,
        long ttl,
        byte[] key,
        byte[] value) {
      this.ttl = ttl;
      this.kinds = kind | condition.kind << 8 | (isFloat ? 1 << 16 : 0);
      this.table = table;
      this.version = condition.version;
      this.key = key;
      this.value = value;
    }

    @Override
    final int bytes() {
      return HEAD_BYTES + operationBytes(ttl, key, value);
    }

    @Override
    final void put(ByteBuffer to, long tag, long deadline) {
      putHead(to, tag, deadline, CLASS_OPERATIONS, 1);
      putOperation(to, kinds, table, version, ttl, key, value);
    }

    @Override
    final T take(ByteBuffer from, int results) {
      int kind = from.get();
      if (kind == ERROR) {
        throw takeError(from);
      }
      return take(kind, from);
    }

    abstract T take(int kind, ByteBuffer from);
  }

  /** Reads an object. */
  static final class Get extends Single<Optional<Value>> {
    Get(long table, byte[] key) {
      super(READ, Condition.always(), false, table, key, NOTHING);
    }

    @Override
    Optional<Value> take(int kind, ByteBuffer from) {
      return takeFound(kind, from);
    }
  }

  static Optional<Value> takeFound(int kind, ByteBuffer from) {
    if (kind == VALUE) {
      return Optional.of(takeValue(from));
    }
    if (kind != ABSENT) {
      throw misunderstood(kind);
    }
    takeVersion(from);
    return Optional.empty();
  }

  /** Writes an object, and returns its new version. */
  static final class Put extends Single<Long> {
    Put(long table, long ttl, byte[] key, byte[] value, Condition condition) {
      super(WRITE, condition, false, table, ttl, key, value);
    }

    /** Writes a number. */
    Put(long table, long ttl, byte[] key, byte[] number, boolean isFloat, Condition condition) {
      super(WRITE_NUMBER, condition, isFloat, table, ttl, key, number);
    }

    @Override
    Long take(int kind, ByteBuffer from) {
      return takeWritten(kind, from);
    }
  }

  static long takeWritten(int kind, ByteBuffer from) {
    if (kind != CHANGED) {
      throw misunderstood(kind);
    }
    return takeVersion(from);
  }

  /** Changes when an object expires, and returns its new version. */
  static final class Expire extends Single<OptionalLong> {
    Expire(long table, long ttl, byte[] key, Condition condition) {
      super(SET_EXPIRY, condition, false, table, ttl, key, NOTHING);
    }

    @Override
    OptionalLong take(int kind, ByteBuffer from) {
      return takeDeleted(kind, from);
    }
  }

  /** Reads how long an object still lives. */
  static final class Ttl extends Single<Optional<Duration>> {
    Ttl(long table, byte[] key) {
      super(READ_EXPIRY, Condition.always(), false, table, key, NOTHING);
    }

    @Override
    Optional<Duration> take(int kind, ByteBuffer from) {
      if (kind == LIVES) {
        return Optional.of(Arguments.ttlOf(takeValue(from).asLong()));
      }
      if (kind != ABSENT) {
        throw misunderstood(kind);
      }
      takeVersion(from);
      return Optional.empty();
    }
  }

  /** Deletes an object, and returns the version that it had. */
  static final class Delete extends Single<OptionalLong> {
    Delete(long table, byte[] key, Condition condition) {
      super(DELETE, condition, false, table, key, NOTHING);
    }

    @Override
    OptionalLong take(int kind, ByteBuffer from) {
      return takeDeleted(kind, from);
    }
  }

  static OptionalLong takeDeleted(int kind, ByteBuffer from) {
    long version = takeVersion(from);
    return switch (kind) {
      case CHANGED -> OptionalLong.of(version);
      case ABSENT -> OptionalLong.empty();
      default -> throw misunderstood(kind);
    };
  }

  /** Adds to a whole number, and returns the sum. */
  static final class Increment extends Single<Sum<Long>> {
    Increment(long table, byte[] key, long by) {
      super(INCREMENT, Condition.always(), false, table, key, number(by));
    }

    @Override
    Sum<Long> take(int kind, ByteBuffer from) {
      Value sum = takeSum(kind, from);
      return new Sum<>(sum.asLong(), sum.version());
    }
  }

  /** Adds to a floating-point number, and returns the sum. */
  static final class IncrementDouble extends Single<Sum<Double>> {
    IncrementDouble(long table, byte[] key, double by) {
      super(INCREMENT, Condition.always(), true, table, key, bits(by));
    }

    @Override
    Sum<Double> take(int kind, ByteBuffer from) {
      Value sum = takeSum(kind, from);
      return new Sum<>(sum.asDouble(), sum.version());
    }
  }

  private static Value takeSum(int kind, ByteBuffer from) {
    if (kind != SUM) {
      throw misunderstood(kind);
    }
    return takeValue(from);
  }

  /** Returns a floating-point number as bytes. */
  static byte[] bits(double number) {
    return number(Double.doubleToRawLongBits(number));
  }

  /** Returns a whole number as bytes. */
  static byte[] number(long number) {
    byte[] bytes = new byte[8];
    for (int at = 0; at < 8; at++) {
      bytes[at] = (byte) (number >> 8 * at);
    }
    return bytes;
  }

  /** Operations of one kind on some objects of a table, each by itself. */
  abstract static class Many<T> extends Call<Many.Results<T>> {
    /**
     * The results of operations in their order.
     *
     * @param values null for an operation that failed
     * @param errors null for an operation that was done
     */
    record Results<T>(List<T> values, List<ThunderheadException> errors) {}

    private final int kind;
    private final long table;
    private final long ttl;
    private final byte[][] keys;
    private final byte[][] values;

    Many(int kind, long table, long ttl, byte[][] keys, byte[][] values) {
      this.kind = kind;
      this.table = table;
      this.ttl = ttl;
      this.keys = keys;
      this.values = values;
    }

    final int count() {
      return keys.length;
    }

    private byte[] value(int at) {
      return values == null ? NOTHING : values[at];
    }

    @Override
    final int bytes() {
      int bytes = HEAD_BYTES;
      for (int at = 0; at < keys.length; at++) {
        bytes += operationBytes(ttl, keys[at], value(at));
      }
      return bytes;
    }

    @Override
    final void put(ByteBuffer to, long tag, long deadline) {
      putHead(to, tag, deadline, CLASS_OPERATIONS, keys.length);
      for (int at = 0; at < keys.length; at++) {
        putOperation(to, kind, table, 0, ttl, keys[at], value(at));
      }
    }

    @Override
    final Results<T> take(ByteBuffer from, int results) {
      List<T> taken = new ArrayList<>(results);
      List<ThunderheadException> errors = new ArrayList<>(results);
      for (int at = 0; at < results; at++) {
        int each = from.get();
        taken.add(each == ERROR ? null : take(each, from));
        errors.add(each == ERROR ? takeError(from) : null);
      }
      return new Results<>(taken, errors);
    }

    abstract T take(int kind, ByteBuffer from);
  }

  /** Reads objects. */
  static final class GetMany extends Many<Optional<Value>> {
    GetMany(long table, byte[][] keys) {
      super(READ, table, 0, keys, null);
    }

    @Override
    Optional<Value> take(int kind, ByteBuffer from) {
      return takeFound(kind, from);
    }
  }

  /** Writes objects. */
  static final class PutMany extends Many<Long> {
    PutMany(long table, long ttl, byte[][] keys, byte[][] values) {
      super(WRITE, table, ttl, keys, values);
    }

    @Override
    Long take(int kind, ByteBuffer from) {
      return takeWritten(kind, from);
    }
  }

  /** Deletes objects. */
  static final class DeleteMany extends Many<OptionalLong> {
    DeleteMany(long table, byte[][] keys) {
      super(DELETE, table, 0, keys, null);
    }

    @Override
    OptionalLong take(int kind, ByteBuffer from) {
      return takeDeleted(kind, from);
    }
  }

  /** A question to the coordinator, whose answer is tables. */
  static final class Question extends Call<List<TableInfo>> {
    private final int kind;
    private final byte[] name;
    private final long first;
    private final long second;

    /** The options of a table to create, else null. */
    private final TableOptions options;

    Question(int kind, byte[] name, long first, long second, TableOptions options) {
      this.kind = kind;
      this.name = name;
      this.first = first;
      this.second = second;
      this.options = options;
    }

    static Question of(int kind, String name, long first, long second) {
      return new Question(kind, Arguments.name(name), first, second, null);
    }

    static Question creation(String name, int span, TableOptions options) {
      return new Question(CREATE_TABLE, Arguments.name(name), span, 0, options);
    }

    static Question list() {
      return new Question(LIST, NOTHING, 0, 0, null);
    }

    @Override
    int bytes() {
      return HEAD_BYTES + 19 + name.length + (options == null ? 0 : OPTIONS_BYTES);
    }

    @Override
    void put(ByteBuffer to, long tag, long deadline) {
      putHead(to, tag, deadline, CLASS_QUESTION, 1);
      to.put((byte) kind).putShort((short) name.length).put(name);
      to.putLong(first).putLong(second);
      if (options != null) {
        options.put(to);
      }
    }

    @Override
    List<TableInfo> take(ByteBuffer from, int results) {
      List<TableInfo> tables = new ArrayList<>(results);
      for (int at = 0; at < results; at++) {
        int each = from.get();
        switch (each) {
          case ERROR -> throw takeError(from);
          case TABLE -> tables.add(takeTable(from));
          case DONE -> takeVersion(from);
          default -> throw misunderstood(each);
        }
      }
      return tables;
    }

    private static TableInfo takeTable(ByteBuffer from) {
      int at = from.position();
      byte[] name = new byte[from.getInt(at + 3)];
      int count = (from.getInt(at + 7) - OPTIONS_BYTES) / 24;
      long id = from.getLong(at + 11);
      from.position(at + 19);
      from.get(name);
      TableOptions options = TableOptions.take(from);
      List<TableInfo.Tablet> tablets = new ArrayList<>(count);
      for (int each = 0; each < count; each++) {
        tablets.add(new TableInfo.Tablet(from.getLong(), from.getLong(), from.getLong()));
      }
      return new TableInfo(new String(name, StandardCharsets.UTF_8), id, tablets, options);
    }
  }

  /** Fetches the next page of a scan. */
  static final class NextPage extends Call<NextPage.Page> {
    /**
     * A page.
     *
     * @param entries the objects
     * @param isLast whether the scan has ended
     */
    record Page(List<Entry> entries, boolean isLast) {}

    private final long scan;

    NextPage(long scan) {
      this.scan = scan;
    }

    @Override
    int bytes() {
      return HEAD_BYTES + 8;
    }

    @Override
    void put(ByteBuffer to, long tag, long deadline) {
      putHead(to, tag, deadline, CLASS_PAGE, 1);
      to.putLong(scan);
    }

    @Override
    Page take(ByteBuffer from, int results) {
      List<Entry> entries = new ArrayList<>(results);
      boolean isLast = false;
      for (int at = 0; at < results; at++) {
        int each = from.get();
        switch (each) {
          case ERROR -> throw takeError(from);
          case VALUE -> entries.add(takeEntry(from));
          case PAGE_END -> {
            isLast = from.get(from.position()) == 1;
            takeVersion(from);
          }
          default -> throw misunderstood(each);
        }
      }
      return new Page(entries, isLast);
    }

    private static Entry takeEntry(ByteBuffer from) {
      int at = from.position();
      byte[] key = new byte[from.getInt(at + 3)];
      byte[] value = new byte[from.getInt(at + 7)];
      long version = from.getLong(at + 11);
      from.position(at + 19);
      from.get(key).get(value);
      return new Entry(key, new Value(value, version));
    }
  }

  /** Reads the error of a client that could not be opened. */
  static RuntimeException takeRefusal(byte[] refusal) {
    ByteBuffer from = Buffers.of(refusal);
    from.get();
    if (from.getShort(2) == Errors.BAD_URL) {
      return new IllegalArgumentException(takeError(from).getMessage());
    }
    return takeError(from);
  }
}
