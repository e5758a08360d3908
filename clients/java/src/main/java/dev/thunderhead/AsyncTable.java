package dev.thunderhead;

import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/**
 * A table whose methods return futures: see {@link Table#async()}.
 *
 * <p>A future ends with the exceptions that the method of {@link Table} throws. Wrong arguments are
 * thrown at once. Cancelling a future cancels its operation, and so does a timeout of the future;
 * an update that was sent may still be done. Operations that are in progress at the same time have
 * no order among them.
 *
 * <p>One thread completes all futures of a client, so their steps must not wait; use {@code
 * thenApplyAsync} for long work.
 */
public final class AsyncTable {
  private final Table table;
  private final Thunderhead db;
  private final long id;
  private final long ttl;

  AsyncTable(Table table) {
    this.table = table;
    this.db = table.db();
    this.id = table.id();
    this.ttl = table.ttl;
  }

  /**
   * Returns the name.
   *
   * @return the name
   */
  public String name() {
    return table.name();
  }

  /**
   * Returns the id, which is never reused.
   *
   * @return the id
   */
  public long id() {
    return id;
  }

  /**
   * Returns a handle to the same table with another time limit.
   *
   * @param deadline more than nothing and at most a year
   * @return the handle
   */
  public AsyncTable withDeadline(Duration deadline) {
    return new AsyncTable(table.withDeadline(deadline));
  }

  /**
   * Returns a handle to the same table whose writes give their objects a time to live: see {@link
   * Table#withTtl}.
   *
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @return the handle
   */
  public AsyncTable withTtl(Duration ttl) {
    return new AsyncTable(table.withTtl(ttl));
  }

  /**
   * Returns a handle to the same table whose methods wait.
   *
   * @return the handle
   */
  public Table sync() {
    return table;
  }

  private <T> CompletableFuture<T> begin(Call<T> call) {
    return db.connection.begin(call, db.deadline);
  }

  /**
   * Reads an object.
   *
   * @param key the key
   * @return the value, or nothing if there is no such object
   */
  public CompletableFuture<Optional<Value>> get(byte[] key) {
    return begin(new Call.Get(id, Arguments.key(key)));
  }

  /**
   * Reads an object.
   *
   * @param key the key
   * @return the value, or nothing if there is no such object
   */
  public CompletableFuture<Optional<Value>> get(String key) {
    return get(Arguments.utf8(key, "the key"));
  }

  /**
   * Writes an object.
   *
   * @param key the key
   * @param value the value
   * @return its new version
   */
  public CompletableFuture<Long> put(byte[] key, byte[] value) {
    return putIf(key, value, Condition.always());
  }

  /**
   * Writes an object.
   *
   * @param key the key
   * @param value the value
   * @return its new version
   */
  public CompletableFuture<Long> put(String key, String value) {
    return putIf(key, value, Condition.always());
  }

  /**
   * Writes an object.
   *
   * @param key the key
   * @param value the value
   * @return its new version
   */
  public CompletableFuture<Long> put(String key, byte[] value) {
    return put(Arguments.utf8(key, "the key"), value);
  }

  /**
   * Writes an object if a condition holds.
   *
   * @param key the key
   * @param value the value
   * @param condition the condition
   * @return its new version.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<Long> putIf(byte[] key, byte[] value, Condition condition) {
    return begin(
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
   * @return its new version.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<Long> putIf(String key, String value, Condition condition) {
    return putIf(Arguments.utf8(key, "the key"), Arguments.utf8(value, "the value"), condition);
  }

  /**
   * Changes when an object expires: it lives for this time from now on.
   *
   * @param key the key
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @return its new version, or nothing if it does not exist
   */
  public CompletableFuture<OptionalLong> expire(byte[] key, Duration ttl) {
    return expireIf(key, ttl, Condition.always());
  }

  /**
   * Changes when an object expires: see {@link #expire(byte[], Duration)}.
   *
   * @param key the key
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @return its new version, or nothing if it does not exist
   */
  public CompletableFuture<OptionalLong> expire(String key, Duration ttl) {
    return expire(Arguments.utf8(key, "the key"), ttl);
  }

  /**
   * Changes when an object expires if a condition holds: see {@link #expire(byte[], Duration)}.
   *
   * @param key the key
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @param condition the condition
   * @return its new version, or nothing if it does not exist.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<OptionalLong> expireIf(byte[] key, Duration ttl, Condition condition) {
    return begin(
        new Call.Expire(
            id, Arguments.ttl(ttl), Arguments.key(key), Arguments.condition(condition)));
  }

  /**
   * Changes when an object expires if a condition holds: see {@link #expire(byte[], Duration)}.
   *
   * @param key the key
   * @param ttl more than nothing, or {@link TableOptions#FOREVER}
   * @param condition the condition
   * @return its new version, or nothing if it does not exist.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<OptionalLong> expireIf(String key, Duration ttl, Condition condition) {
    return expireIf(Arguments.utf8(key, "the key"), ttl, condition);
  }

  /**
   * Reads how long an object still lives.
   *
   * @param key the key
   * @return the time, or {@link TableOptions#FOREVER}; nothing if there is no such object
   */
  public CompletableFuture<Optional<Duration>> ttl(byte[] key) {
    return begin(new Call.Ttl(id, Arguments.key(key)));
  }

  /**
   * Reads how long an object still lives.
   *
   * @param key the key
   * @return the time, or {@link TableOptions#FOREVER}; nothing if there is no such object
   */
  public CompletableFuture<Optional<Duration>> ttl(String key) {
    return ttl(Arguments.utf8(key, "the key"));
  }

  /**
   * Deletes an object.
   *
   * @param key the key
   * @return the version that it had, or nothing if it did not exist
   */
  public CompletableFuture<OptionalLong> delete(byte[] key) {
    return deleteIf(key, Condition.always());
  }

  /**
   * Deletes an object.
   *
   * @param key the key
   * @return the version that it had, or nothing if it did not exist
   */
  public CompletableFuture<OptionalLong> delete(String key) {
    return delete(Arguments.utf8(key, "the key"));
  }

  /**
   * Deletes an object if a condition holds.
   *
   * @param key the key
   * @param condition the condition
   * @return the version that it had, or nothing if it did not exist.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<OptionalLong> deleteIf(byte[] key, Condition condition) {
    return begin(new Call.Delete(id, Arguments.key(key), Arguments.condition(condition)));
  }

  /**
   * Deletes an object if a condition holds.
   *
   * @param key the key
   * @param condition the condition
   * @return the version that it had, or nothing if it did not exist.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<OptionalLong> deleteIf(String key, Condition condition) {
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
  public CompletableFuture<Long> putNumber(byte[] key, long number) {
    return putNumberIf(key, number, Condition.always());
  }

  /**
   * Writes a whole number: see {@link #putNumber(byte[], long)}.
   *
   * @param key the key
   * @param number the number
   * @return its new version
   */
  public CompletableFuture<Long> putNumber(String key, long number) {
    return putNumber(Arguments.utf8(key, "the key"), number);
  }

  /**
   * Writes a whole number if a condition holds: see {@link #putNumber(byte[], long)}.
   *
   * @param key the key
   * @param number the number
   * @param condition the condition
   * @return its new version.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<Long> putNumberIf(byte[] key, long number, Condition condition) {
    return begin(
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
   * @return its new version.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<Long> putNumberIf(String key, long number, Condition condition) {
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
  public CompletableFuture<Long> putNumber(byte[] key, double number) {
    return putNumberIf(key, number, Condition.always());
  }

  /**
   * Writes a floating-point number: see {@link #putNumber(byte[], double)}.
   *
   * @param key the key
   * @param number the number
   * @return its new version
   */
  public CompletableFuture<Long> putNumber(String key, double number) {
    return putNumber(Arguments.utf8(key, "the key"), number);
  }

  /**
   * Writes a floating-point number if a condition holds: see {@link #putNumber(byte[], double)}.
   *
   * @param key the key
   * @param number the number
   * @param condition the condition
   * @return its new version.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<Long> putNumberIf(byte[] key, double number, Condition condition) {
    return begin(
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
   * @return its new version.
   *     The future ends with a {@link ConditionFailedException} if the condition does not hold.
   */
  public CompletableFuture<Long> putNumberIf(String key, double number, Condition condition) {
    return putNumberIf(Arguments.utf8(key, "the key"), number, condition);
  }

  /**
   * Adds to a whole number. An object that does not exist counts as 0. An increment is never done
   * twice, also if servers crash.
   *
   * @param key the key
   * @param by the number to add
   * @return the sum and the object's new version.
   *     The future ends with a {@link NotANumberException} if the object is not a whole number.
   */
  public CompletableFuture<Sum<Long>> increment(byte[] key, long by) {
    return begin(new Call.Increment(id, Arguments.key(key), by));
  }

  /**
   * Adds to a whole number: see {@link #increment(byte[], long)}.
   *
   * @param key the key
   * @param by the number to add
   * @return the sum and the object's new version
   */
  public CompletableFuture<Sum<Long>> increment(String key, long by) {
    return increment(Arguments.utf8(key, "the key"), by);
  }

  /**
   * Adds to a floating-point number. An object that does not exist counts as 0.
   *
   * @param key the key
   * @param by the number to add
   * @return the sum and the object's new version.
   *     The future ends with a {@link NotANumberException} if the object is not a floating-point
   *     number.
   */
  public CompletableFuture<Sum<Double>> increment(byte[] key, double by) {
    return begin(new Call.IncrementDouble(id, Arguments.key(key), by));
  }

  /**
   * Adds to a floating-point number: see {@link #increment(byte[], double)}.
   *
   * @param key the key
   * @param by the number to add
   * @return the sum and the object's new version
   */
  public CompletableFuture<Sum<Double>> increment(String key, double by) {
    return increment(Arguments.utf8(key, "the key"), by);
  }

  /**
   * Reads many objects.
   *
   * @param keys the keys
   * @return the values in the order of the keys; nothing where there is no such object
   */
  public CompletableFuture<List<Optional<Value>>> getMany(Collection<byte[]> keys) {
    return many(Batches.gets(id, keys), true);
  }

  /**
   * Reads many objects.
   *
   * @param keys the keys
   * @return the values in the order of the keys; nothing where there is no such object
   */
  public CompletableFuture<List<Optional<Value>>> getMany(String... keys) {
    return getMany(Batches.utf8(keys));
  }

  /**
   * Writes many objects.
   *
   * @param entries the objects; their versions are ignored
   * @return their new versions in the same order.
   *     The future ends with a {@link PartlyDoneException} if some were written and others were
   *     not.
   */
  public CompletableFuture<List<Long>> putMany(Collection<Entry> entries) {
    return many(Batches.puts(id, ttl, entries), false);
  }

  /**
   * Writes many objects.
   *
   * @param entries the objects; their versions are ignored
   * @return their new versions in the same order.
   *     The future ends with a {@link PartlyDoneException} if some were written and others were
   *     not.
   */
  public CompletableFuture<List<Long>> putMany(Entry... entries) {
    return putMany(Arrays.asList(entries));
  }

  /**
   * Deletes many objects.
   *
   * @param keys the keys
   * @return the versions that they had, in the same order; nothing where there was no such object.
   *     The future ends with a {@link PartlyDoneException} if some were deleted and others were
   *     not.
   */
  public CompletableFuture<List<OptionalLong>> deleteMany(Collection<byte[]> keys) {
    return many(Batches.deletes(id, keys), false);
  }

  /**
   * Deletes many objects.
   *
   * @param keys the keys
   * @return the versions that they had, in the same order; nothing where there was no such object.
   *     The future ends with a {@link PartlyDoneException} if some were deleted and others were
   *     not.
   */
  public CompletableFuture<List<OptionalLong>> deleteMany(String... keys) {
    return deleteMany(Batches.utf8(keys));
  }

  private <T> CompletableFuture<List<T>> many(
      List<? extends Call.Many<T>> calls, boolean reads) {
    if (calls.isEmpty()) {
      return CompletableFuture.completedFuture(List.of());
    }
    List<CompletableFuture<Call.Many.Results<T>>> parts =
        calls.stream().map(call -> begin((Call<Call.Many.Results<T>>) call)).toList();
    CompletableFuture<List<T>> to = parts.get(0).newIncompleteFuture();
    CompletableFuture.allOf(parts.toArray(CompletableFuture<?>[]::new))
        .whenComplete((nothing, error) -> finish(calls, parts, reads, to));
    to.whenComplete((values, error) -> parts.forEach(part -> part.cancel(true)));
    return to;
  }

  private static <T> void finish(
      List<? extends Call.Many<T>> calls,
      List<CompletableFuture<Call.Many.Results<T>>> parts,
      boolean reads,
      CompletableFuture<List<T>> to) {
    Batches.Collector<T> collector = new Batches.Collector<>(reads);
    try {
      for (int at = 0; at < parts.size(); at++) {
        try {
          collector.add(parts.get(at).join());
        } catch (CompletionException error) {
          if (!(error.getCause() instanceof ThunderheadException failure)) {
            to.completeExceptionally(error.getCause());
            return;
          }
          collector.addFailure(calls.get(at).count(), failure);
        }
      }
      to.complete(collector.finish());
    } catch (RuntimeException error) {
      to.completeExceptionally(error);
    }
  }

  /**
   * Enumerates all objects, in no particular order.
   *
   * @return the scan, whose pages come as futures
   */
  public AsyncScan scan() {
    return new AsyncScan(db, id);
  }

  @Override
  public String toString() {
    return "table " + name();
  }
}
