package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class AsyncTest {
  private static Thunderhead db;
  private AsyncTable table;

  @BeforeAll
  static void connect() {
    db = Thunderhead.connect(Server.shared().url());
  }

  @AfterAll
  static void close() {
    db.close();
  }

  @BeforeEach
  void createTable() {
    table = db.createTable(Server.newName()).async();
  }

  /** Returns the error with which a future ends, and checks that no other one is around it. */
  private static <E extends Throwable> E failure(Class<E> type, CompletableFuture<?> future) {
    Throwable error = assertThrows(ExecutionException.class, future::get).getCause();
    Throwable[] seen = new Throwable[1];
    future.whenComplete((value, raw) -> seen[0] = raw);
    assertInstanceOf(type, seen[0]);
    return assertInstanceOf(type, error);
  }

  @Test
  void theSameOperationsReturnFutures() {
    long version = table.put("ada", "analyst").join();
    assertEquals("analyst", table.get("ada").join().orElseThrow().text());
    assertEquals(Optional.empty(), table.get("bob").join());
    assertTrue(table.putIf("ada", "countess", Condition.versionIs(version)).join() > version);
    assertEquals(5L, table.increment("visits", 5).join().number());
    assertEquals(1.5, table.increment("share", 1.5).join().number());
    table.putNumber("visits", 7).join();
    Sum<Long> sum = table.increment("visits", 1).join();
    assertEquals(8L, sum.number());
    failure(ConditionFailedException.class, table.putNumberIf("visits", 9, Condition.absent()));
    Condition unchanged = Condition.versionIs(sum.version());
    long next = table.putNumberIf("visits", 9.5, unchanged).join();
    assertEquals(9.5, table.get("visits").join().orElseThrow().asDouble());
    assertEquals(OptionalLong.of(next), table.delete("visits").join());
    assertEquals(OptionalLong.empty(), table.deleteIf("visits", Condition.always()).join());
    Duration minute = Duration.ofMinutes(1);
    table.withTtl(minute).putIf("lives", "v", Condition.absent()).join();
    assertTrue(table.ttl("lives").join().orElseThrow().compareTo(minute) <= 0);
    assertTrue(table.expire("lives", TableOptions.FOREVER).join().isPresent());
    assertEquals(Optional.of(TableOptions.FOREVER), table.ttl("lives").join());
    failure(
        ConditionFailedException.class,
        table.expireIf("lives", minute, Condition.versionIs(1L << 60)));
    TableOptions cache = TableOptions.DEFAULT.withPolicy(TableOptions.Policy.CACHE);
    AsyncTable made = db.async().createTable(Server.newName(), 1, cache).join();
    assertEquals(cache, db.tableInfo(made.name()).options());
    assertEquals(2, table.putMany(Entry.of("a", "1"), Entry.of("b", "2")).join().size());
    assertEquals(3, table.getMany("a", "b", "c").join().size());
    List<OptionalLong> deleted = table.deleteMany("a", "c").join();
    assertTrue(deleted.get(0).isPresent());
    assertEquals(OptionalLong.empty(), deleted.get(1));
    assertEquals(List.of(), table.getMany().join());
  }

  @Test
  void errorsComeWithoutOthersAroundThem() {
    long version = table.put("ada", "analyst").join();
    var condition =
        failure(
            ConditionFailedException.class, table.putIf("ada", "x", Condition.absent()));
    assertEquals(version, condition.version());
    failure(NotANumberException.class, table.increment("ada", 1));
    failure(NotANumberException.class, table.increment("ada", 1.5));
    String name = Server.newName();
    AsyncThunderhead async = db.async();
    failure(NoSuchTableException.class, async.table(name));
    AsyncTable other = async.createTable(name).join();
    failure(TableExistsException.class, async.createTable(name));
    assertEquals(2, async.split(name, 1L << 63).join().tablets().size());
    failure(NotDoneException.class, async.migrate(name, 0, 77));
    assertTrue(async.tables().join().stream().anyMatch(it -> it.name().equals(name)));
    async.dropTable(name).join();
    failure(NoSuchTableException.class, other.get("ada"));
    failure(NoSuchTableException.class, other.getMany("ada", "bob"));
    failure(NoSuchTableException.class, other.putMany(Entry.of("ada", "x")));
  }

  @Test
  void manyOperationsAreInProgressAtTheSameTime() {
    int count = 20_000;
    List<CompletableFuture<Sum<Long>>> sums = new ArrayList<>();
    for (int at = 0; at < count; at++) {
      sums.add(table.increment("n" + at % 10, 1));
    }
    CompletableFuture.allOf(sums.toArray(CompletableFuture<?>[]::new)).join();
    for (int at = 0; at < 10; at++) {
      assertEquals(count / 10, table.get("n" + at).join().orElseThrow().asLong());
    }
    Set<Long> distinct = new HashSet<>();
    sums.forEach(sum -> distinct.add(sum.join().number()));
    assertEquals(count / 10, distinct.size(), "each sum came once for each key");
  }

  @Test
  void largeRequestsAndResultsPass() {
    byte[] value = new byte[60_000];
    List<Entry> entries =
        IntStream.range(0, 300).mapToObj(at -> Entry.of(new byte[] {1, (byte) at}, value)).toList();
    table.putMany(entries.subList(0, 100)).join();
    var values = table.getMany(entries.stream().map(Entry::key).toList()).join();
    assertArrayEquals(value, values.get(99).orElseThrow().bytes());
    List<CompletableFuture<Optional<Value>>> gets = new ArrayList<>();
    for (int at = 0; at < 300; at++) {
      gets.add(table.get(entries.get(at % 100).key()));
    }
    gets.forEach(get -> assertEquals(60_000, get.join().orElseThrow().bytes().length));
    byte[] big = new byte[100_000];
    List<CompletableFuture<Long>> puts = new ArrayList<>();
    for (int at = 0; at < 20; at++) {
      puts.add(table.put(new byte[] {2}, big));
    }
    puts.forEach(CompletableFuture::join);
  }

  @Test
  void stepsMayBeginOperations() {
    AtomicInteger steps = new AtomicInteger();
    List<CompletableFuture<Sum<Long>>> chains = new ArrayList<>();
    for (int at = 0; at < 100; at++) {
      String key = "chain" + at;
      CompletableFuture<Sum<Long>> chain = table.increment(key, 1);
      for (int step = 1; step < 20; step++) {
        chain =
            chain.thenCompose(
                sum -> {
                  steps.incrementAndGet();
                  return table.increment(key, sum.number());
                });
      }
      chains.add(chain);
    }
    chains.forEach(chain -> assertEquals(1L << 19, chain.join().number()));
    assertEquals(1900, steps.get());
  }

  @Test
  void aStepThatWaitsForAnotherFutureIsRefused() {
    try (Server server = Server.start();
        Thunderhead client =
            Thunderhead.builder(server.url()).deadline(Duration.ofHours(1)).connect()) {
      AsyncTable there = client.createTable("t").async();
      there.get("a").join();
      // Only the completer can run these steps, because the results come after they are attached.
      server.pause();
      CompletableFuture<Object> waits = there.get("a").thenApply(value -> there.get("b").join());
      CompletableFuture<Object> sync = there.get("a").thenApply(value -> there.sync().get("b"));
      server.resume();
      var error = assertThrows(CompletionException.class, waits::join);
      assertInstanceOf(IllegalStateException.class, error.getCause());
      // A call that waits by itself is allowed.
      assertEquals(Optional.empty(), sync.join());
    }
  }

  @Test
  void anExceptionOfAStepHurtsNoOtherFuture() {
    CompletableFuture<Object> bad =
        table.get("a").thenApply(value -> { throw new StackOverflowError(); });
    assertThrows(CompletionException.class, bad::join);
    assertEquals(Optional.empty(), table.get("a").join());
  }

  @Test
  void aScanComesPageByPage() {
    int count = 3000;
    List<Entry> entries =
        IntStream.range(0, count).mapToObj(at -> Entry.of("k" + at, "x")).toList();
    table.putMany(entries).join();
    Set<String> keys = ConcurrentHashMap.newKeySet();
    table.scan().forEach(entry -> keys.add(entry.keyText())).join();
    assertEquals(count, keys.size());
    AsyncScan closed = table.scan();
    assertFalse(closed.nextPage().join().isEmpty());
    closed.close();
    closed.close();
    assertThrows(IllegalStateException.class, closed::nextPage);
    AsyncScan scan = table.scan();
    int found = 0;
    List<Entry> page = scan.nextPage().join();
    while (!page.isEmpty()) {
      found += page.size();
      page = scan.nextPage().join();
    }
    assertEquals(count, found);
    assertEquals(List.of(), scan.nextPage().join());
    var failed = table.scan().forEach(entry -> { throw new IllegalStateException("mine"); });
    assertThrows(CompletionException.class, failed::join);
  }

  @Test
  void cancellingAFutureCancelsItsOperation() throws Exception {
    try (Server server = Server.start()) {
      Thunderhead client =
          Thunderhead.builder(server.url()).deadline(Duration.ofHours(1)).connect();
      AsyncTable there = client.createTable("t").async();
      there.put("ada", "analyst").join();
      server.pause();
      CompletableFuture<Long> put = there.put("ada", "x");
      assertTrue(put.cancel(true));
      assertTrue(put.isCancelled());
      assertThrows(CancellationException.class, put::join);
      CompletableFuture<List<Optional<Value>>> many = there.getMany("ada", "bob");
      assertTrue(many.cancel(true));
      CompletableFuture<Sum<Long>> late =
          there.increment("n", 1).orTimeout(1, TimeUnit.MILLISECONDS);
      assertInstanceOf(
          TimeoutException.class, assertThrows(ExecutionException.class, late::get).getCause());
      CompletableFuture<Optional<Value>> standIn =
          there.get("ada").completeOnTimeout(Optional.empty(), 1, TimeUnit.MILLISECONDS);
      assertEquals(Optional.empty(), standIn.get());
      // With an hour for each operation, closing would last if one was still in progress.
      client.close();
      server.resume();
    }
  }

  @Test
  void afterAnUnreachableClusterFuturesSayWhetherAChangeMayHaveBeenDone() {
    try (Server server = Server.start();
        Thunderhead client = Thunderhead.connect(server.url())) {
      AsyncTable there = client.createTable("t").async();
      there.put("ada", "analyst").join();
      server.pause();
      AsyncTable hasty = there.withDeadline(Duration.ofMillis(20));
      failure(TimedOutException.class, hasty.get("ada"));
      failure(OutcomeUnknownException.class, hasty.put("ada", "x"));
      failure(TimedOutException.class, hasty.getMany("ada", "bob"));
      assertEquals(
          2,
          failure(PartlyDoneException.class, hasty.putMany(Entry.of("a", "1"), Entry.of("b", "2")))
              .errors()
              .size());
      failure(TimedOutException.class, hasty.scan().nextPage());
      server.resume();
      assertTrue(there.get("ada").join().isPresent());
    }
  }
}
