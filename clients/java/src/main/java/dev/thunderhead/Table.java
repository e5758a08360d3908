package dev.thunderhead;

import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.stream.Stream;

/**
 * A table of objects. Any thread may use it. Keys and values are bytes; texts become UTF-8.
 *
 * <p>Keys have 1 to 65536 bytes and values at most 1048576. An operation on one object is atomic.
 * Operations on many objects are done at the same time, each by itself.
 *
 * <p>All methods throw a {@link NotDoneException} or an {@link OutcomeUnknownException} if they
 * fail.
 */
public final class Table {
  private final Thunderhead db;
  private final String name;
  private final long id;

  /** How long written objects live in milliseconds; 0: as long as the table says. */
  final long ttl;

  Table(Thunderhead db, TableInfo table) {
    this(db, table.name(), table.id(), 0);
  }

  private Table(Thunderhead db, String name, long id, long ttl) {
    this.db = db;
    this.name = name;
    this.id = id;
    this.ttl = ttl;
  }

  /**
   * Returns the name.
   *
   * @return the name
   */
  public String name() {
    return name;
  }

  /**
   * Returns the id, which is never reused.
   *
   * @return the id
   */
  public long id() {
    return id;
  }

  Thunderhead db() {
    return db;
  }

  /**
   * Returns a handle to the same table with another time limit.
   *
   * @param deadline more than nothing and at most a year
   * @return the handle
   */
  public Table withDeadline(Duration deadline) {
    return new Table(db.withDeadline(deadline), name, id, ttl);
  }

  /**
   * Returns a handle to the same table whose writes give their objects a time to live. The time
   * begins when the server does the write. An increment of an object that exists keeps its time.
   *
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @return the handle
   */
  public Table withTtl(Duration ttl) {
    return new Table(db, name, id, Arguments.ttl(ttl));
  }

  /**
   * Returns a handle to the same table whose methods return futures. The first call for a client
   * connects, and waits for that.
   *
   * @return the handle
   */
  public AsyncTable async() {
    db.connection.queue();
    return new AsyncTable(this);
  }

  private <T> T call(Call<T> call) {
    return db.connection.call(call, db.deadline);
  }

  /**
   * Reads an object.
   *
   * @param key the key
   * @return the value, or nothing if there is no such object
   */
  public Optional<Value> get(byte[] key) {
    return call(new Call.Get(id, Arguments.key(key)));
  }

  /**
   * Reads an object.
   *
   * @param key the key
   * @return the value, or nothing if there is no such object
   */
  public Optional<Value> get(String key) {
    return get(Arguments.utf8(key, "the key"));
  }

  /**
   * Writes an object.
   *
   * @param key the key
   * @param value the value
   * @return its new version
   */
  public long put(byte[] key, byte[] value) {
    return putIf(key, value, Condition.always());
  }

  /**
   * Writes an object.
   *
   * @param key the key
   * @param value the value
   * @return its new version
   */
  public long put(String key, String value) {
    return putIf(key, value, Condition.always());
  }

  /**
   * Writes an object.
   *
   * @param key the key
   * @param value the value
   * @return its new version
   */
  public long put(String key, byte[] value) {
    return put(Arguments.utf8(key, "the key"), value);
  }

  /**
   * Writes an object if a condition holds.
   *
   * @param key the key
   * @param value the value
   * @param condition the condition
   * @return its new version
   * @throws ConditionFailedException if the condition does not hold
   */
  public long putIf(byte[] key, byte[] value, Condition condition) {
    return call(
        new Call.Put(
            id,
            ttl,
            Arguments.key(key),
            Arguments.value(value),
            Arguments.condition(condition)));
  }

  /**
   * Writes an object if a condition holds.
   *
   * @param key the key
   * @param value the value
   * @param condition the condition
   * @return its new version
   * @throws ConditionFailedException if the condition does not hold
   */
  public long putIf(String key, String value, Condition condition) {
    return putIf(Arguments.utf8(key, "the key"), Arguments.utf8(value, "the value"), condition);
  }

  /**
   * Changes when an object expires: it lives for this time from now on.
   *
   * @param key the key
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @return its new version, or nothing if it does not exist
   */
  public OptionalLong expire(byte[] key, Duration ttl) {
    return expireIf(key, ttl, Condition.always());
  }

  /**
   * Changes when an object expires: see {@link #expire(byte[], Duration)}.
   *
   * @param key the key
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @return its new version, or nothing if it does not exist
   */
  public OptionalLong expire(String key, Duration ttl) {
    return expire(Arguments.utf8(key, "the key"), ttl);
  }

  /**
   * Changes when an object expires if a condition holds: see {@link #expire(byte[], Duration)}.
   *
   * @param key the key
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @param condition the condition
   * @return its new version, or nothing if it does not exist
   * @throws ConditionFailedException if the condition does not hold
   */
  public OptionalLong expireIf(byte[] key, Duration ttl, Condition condition) {
    return call(
        new Call.Expire(
            id, Arguments.ttl(ttl), Arguments.key(key), Arguments.condition(condition)));
  }

  /**
   * Changes when an object expires if a condition holds: see {@link #expire(byte[], Duration)}.
   *
   * @param key the key
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @param condition the condition
   * @return its new version, or nothing if it does not exist
   * @throws ConditionFailedException if the condition does not hold
   */
  public OptionalLong expireIf(String key, Duration ttl, Condition condition) {
    return expireIf(Arguments.utf8(key, "the key"), ttl, condition);
  }

  /**
   * Reads how long an object still lives.
   *
   * @param key the key
   * @return the time, or {@link TableOptions#FOREVER}; nothing if there is no such object
   */
  public Optional<Duration> ttl(byte[] key) {
    return call(new Call.Ttl(id, Arguments.key(key)));
  }

  /**
   * Reads how long an object still lives.
   *
   * @param key the key
   * @return the time, or {@link TableOptions#FOREVER}; nothing if there is no such object
   */
  public Optional<Duration> ttl(String key) {
    return ttl(Arguments.utf8(key, "the key"));
  }

  /**
   * Deletes an object.
   *
   * @param key the key
   * @return the version that it had, or nothing if it did not exist
   */
  public OptionalLong delete(byte[] key) {
    return deleteIf(key, Condition.always());
  }

  /**
   * Deletes an object.
   *
   * @param key the key
   * @return the version that it had, or nothing if it did not exist
   */
  public OptionalLong delete(String key) {
    return delete(Arguments.utf8(key, "the key"));
  }

  /**
   * Deletes an object if a condition holds.
   *
   * @param key the key
   * @param condition the condition
   * @return the version that it had, or nothing if it did not exist
   * @throws ConditionFailedException if the condition does not hold
   */
  public OptionalLong deleteIf(byte[] key, Condition condition) {
    return call(new Call.Delete(id, Arguments.key(key), Arguments.condition(condition)));
  }

  /**
   * Deletes an object if a condition holds.
   *
   * @param key the key
   * @param condition the condition
   * @return the version that it had, or nothing if it did not exist
   * @throws ConditionFailedException if the condition does not hold
   */
  public OptionalLong deleteIf(String key, Condition condition) {
    return deleteIf(Arguments.utf8(key, "the key"), condition);
  }

  /**
   * Writes a whole number, to which {@link #increment(byte[], long)} can add. {@link Value#asLong}
   * reads it.
   *
   * @param key the key
   * @param number the number
   * @return its new version
   */
  public long putNumber(byte[] key, long number) {
    return putNumberIf(key, number, Condition.always());
  }

  /**
   * Writes a whole number: see {@link #putNumber(byte[], long)}.
   *
   * @param key the key
   * @param number the number
   * @return its new version
   */
  public long putNumber(String key, long number) {
    return putNumber(Arguments.utf8(key, "the key"), number);
  }

  /**
   * Writes a whole number if a condition holds: see {@link #putNumber(byte[], long)}.
   *
   * @param key the key
   * @param number the number
   * @param condition the condition
   * @return its new version
   * @throws ConditionFailedException if the condition does not hold
   */
  public long putNumberIf(byte[] key, long number, Condition condition) {
    return call(
        new Call.Put(
            id,
            ttl,
            Arguments.key(key),
            Call.number(number),
            false,
            Arguments.condition(condition)));
  }

  /**
   * Writes a whole number if a condition holds: see {@link #putNumber(byte[], long)}.
   *
   * @param key the key
   * @param number the number
   * @param condition the condition
   * @return its new version
   * @throws ConditionFailedException if the condition does not hold
   */
  public long putNumberIf(String key, long number, Condition condition) {
    return putNumberIf(Arguments.utf8(key, "the key"), number, condition);
  }

  /**
   * Writes a floating-point number, to which {@link #increment(byte[], double)} can add. {@link
   * Value#asDouble} reads it.
   *
   * @param key the key
   * @param number the number
   * @return its new version
   */
  public long putNumber(byte[] key, double number) {
    return putNumberIf(key, number, Condition.always());
  }

  /**
   * Writes a floating-point number: see {@link #putNumber(byte[], double)}.
   *
   * @param key the key
   * @param number the number
   * @return its new version
   */
  public long putNumber(String key, double number) {
    return putNumber(Arguments.utf8(key, "the key"), number);
  }

  /**
   * Writes a floating-point number if a condition holds: see {@link #putNumber(byte[], double)}.
   *
   * @param key the key
   * @param number the number
   * @param condition the condition
   * @return its new version
   * @throws ConditionFailedException if the condition does not hold
   */
  public long putNumberIf(byte[] key, double number, Condition condition) {
    return call(
        new Call.Put(
            id,
            ttl,
            Arguments.key(key),
            Call.bits(number),
            true,
            Arguments.condition(condition)));
  }

  /**
   * Writes a floating-point number if a condition holds: see {@link #putNumber(byte[], double)}.
   *
   * @param key the key
   * @param number the number
   * @param condition the condition
   * @return its new version
   * @throws ConditionFailedException if the condition does not hold
   */
  public long putNumberIf(String key, double number, Condition condition) {
    return putNumberIf(Arguments.utf8(key, "the key"), number, condition);
  }

  /**
   * Adds to a whole number. An object that does not exist counts as 0. An increment is never done
   * twice, also if servers crash.
   *
   * @param key the key
   * @param by the number to add
   * @return the sum and the object's new version
   * @throws NotANumberException if the object is not a whole number
   */
  public Sum<Long> increment(byte[] key, long by) {
    return call(new Call.Increment(id, Arguments.key(key), by));
  }

  /**
   * Adds to a whole number: see {@link #increment(byte[], long)}.
   *
   * @param key the key
   * @param by the number to add
   * @return the sum and the object's new version
   */
  public Sum<Long> increment(String key, long by) {
    return increment(Arguments.utf8(key, "the key"), by);
  }

  /**
   * Adds to a floating-point number. An object that does not exist counts as 0.
   *
   * @param key the key
   * @param by the number to add
   * @return the sum and the object's new version
   * @throws NotANumberException if the object is not a floating-point number
   */
  public Sum<Double> increment(byte[] key, double by) {
    return call(new Call.IncrementDouble(id, Arguments.key(key), by));
  }

  /**
   * Adds to a floating-point number: see {@link #increment(byte[], double)}.
   *
   * @param key the key
   * @param by the number to add
   * @return the sum and the object's new version
   */
  public Sum<Double> increment(String key, double by) {
    return increment(Arguments.utf8(key, "the key"), by);
  }

  /**
   * Reads many objects.
   *
   * @param keys the keys
   * @return the values in the order of the keys; nothing where there is no such object
   */
  public List<Optional<Value>> getMany(Collection<byte[]> keys) {
    return many(Batches.gets(id, keys), true);
  }

  /**
   * Reads many objects.
   *
   * @param keys the keys
   * @return the values in the order of the keys; nothing where there is no such object
   */
  public List<Optional<Value>> getMany(String... keys) {
    return getMany(Batches.utf8(keys));
  }

  /**
   * Writes many objects.
   *
   * @param entries the objects; their versions are ignored
   * @return their new versions in the same order
   * @throws PartlyDoneException if some were written and others were not
   */
  public List<Long> putMany(Collection<Entry> entries) {
    return many(Batches.puts(id, ttl, entries), false);
  }

  /**
   * Writes many objects.
   *
   * @param entries the objects; their versions are ignored
   * @return their new versions in the same order
   * @throws PartlyDoneException if some were written and others were not
   */
  public List<Long> putMany(Entry... entries) {
    return putMany(Arrays.asList(entries));
  }

  /**
   * Deletes many objects.
   *
   * @param keys the keys
   * @return the versions that they had, in the same order; nothing where there was no such object
   * @throws PartlyDoneException if some were deleted and others were not
   */
  public List<OptionalLong> deleteMany(Collection<byte[]> keys) {
    return many(Batches.deletes(id, keys), false);
  }

  /**
   * Deletes many objects.
   *
   * @param keys the keys
   * @return the versions that they had, in the same order; nothing where there was no such object
   * @throws PartlyDoneException if some were deleted and others were not
   */
  public List<OptionalLong> deleteMany(String... keys) {
    return deleteMany(Batches.utf8(keys));
  }

  private <T> List<T> many(List<? extends Call.Many<T>> calls, boolean reads) {
    Batches.Collector<T> collector = new Batches.Collector<>(reads);
    ThunderheadException failure = null;
    boolean isFirst = true;
    for (Call.Many<T> each : calls) {
      if (!isFirst && failure == null && Thread.currentThread().isInterrupted()) {
        failure = Errors.interrupted();
      }
      isFirst = false;
      if (failure == null) {
        try {
          collector.add(call(each));
        } catch (NotDoneException error) {
          failure = error;
        }
      }
      if (failure != null) {
        collector.addFailure(each.count(), failure);
      }
    }
    return collector.finish();
  }

  /**
   * Enumerates all objects, in no particular order. An object that exists during the whole
   * enumeration comes exactly once. An object that is created or deleted meanwhile comes or not.
   *
   * <p>The stream fetches pages as it goes on, each with the deadline of this handle. If one fails,
   * the operation on the stream throws. Close the stream if you do not read it to its end.
   *
   * @return the objects
   */
  public Stream<Entry> scan() {
    return Scan.stream(db, id);
  }

  @Override
  public String toString() {
    return "table " + name;
  }
}
