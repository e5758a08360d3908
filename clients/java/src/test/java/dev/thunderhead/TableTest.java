package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class TableTest {
  private static Thunderhead db;
  private Table table;

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
    table = db.createTable(Server.newName());
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  @Test
  void aMissingKeyIsAValue() {
    assertEquals(Optional.empty(), table.get("ada"));
    assertEquals(OptionalLong.empty(), table.delete("ada"));
  }

  @Test
  void aWrittenObjectIsRead() {
    long version = table.put("ada", "analyst");
    Value value = table.get("ada").orElseThrow();
    assertEquals("analyst", value.text());
    assertEquals(version, value.version());
    assertArrayEquals(bytes("analyst"), table.get(bytes("ada")).orElseThrow().bytes());
    long next = table.put(bytes("ada"), bytes("countess"));
    assertTrue(next > version);
    assertEquals("countess", table.get("ada").orElseThrow().text());
    assertEquals(OptionalLong.of(next), table.delete("ada"));
    assertEquals(Optional.empty(), table.get("ada"));
  }

  @Test
  void anObjectLivesForItsTime() {
    Duration minute = Duration.ofMinutes(1);
    assertEquals(Optional.empty(), table.ttl("ada"));
    assertEquals(OptionalLong.empty(), table.expire("ada", minute));
    Table living = table.withTtl(minute);
    long version = living.put("ada", "analyst");
    assertAtMost(minute, "ada");
    Condition other = Condition.versionIs(version + 1);
    assertThrows(ConditionFailedException.class, () -> table.expireIf("ada", minute, other));
    Condition its = Condition.versionIs(version);
    assertTrue(table.expireIf("ada", TableOptions.FOREVER, its).orElseThrow() > version);
    assertEquals(Optional.of(TableOptions.FOREVER), table.ttl(bytes("ada")));
    living.putIf("ada", "countess", Condition.present());
    assertAtMost(minute, "ada");
    table.put("ada", "analyst");
    assertEquals(Optional.of(TableOptions.FOREVER), table.ttl("ada"));
    living.putNumber("n", 7);
    living.putNumberIf("r", 1.5, Condition.absent());
    table.increment("n", 1);
    living.putMany(Entry.of("a", "1"), Entry.of("b", "2"));
    for (String key : List.of("n", "r", "a", "b")) {
      assertAtMost(minute, key);
    }
    table.withTtl(Duration.ofNanos(1)).withDeadline(minute).put("ada", "analyst");
    while (table.get("ada").isPresent()) {
      Thread.onSpinWait();
    }
  }

  private void assertAtMost(Duration most, String key) {
    Duration left = table.ttl(key).orElseThrow();
    assertFalse(left.isZero() || left.isNegative() || left.compareTo(most) > 0, left.toString());
  }

  @Test
  void aTimeToLiveIsMoreThanNothing() {
    for (Duration none : new Duration[] {Duration.ZERO, Duration.ofMillis(-1)}) {
      assertThrows(IllegalArgumentException.class, () -> table.withTtl(none));
      assertThrows(IllegalArgumentException.class, () -> table.expire("ada", none));
      assertThrows(IllegalArgumentException.class, () -> TableOptions.DEFAULT.withTtl(none));
    }
    Duration longest = TableOptions.FOREVER.minusNanos(1);
    table.withTtl(longest).put("ada", "analyst");
    assertTrue(table.ttl("ada").orElseThrow().compareTo(Duration.ofDays(366)) > 0);
  }

  @Test
  void aTableKeepsItsOptions() {
    Duration minute = Duration.ofMinutes(1);
    TableOptions options =
        TableOptions.DEFAULT
            .withTtl(minute)
            .withPolicy(TableOptions.Policy.CACHE)
            .withMaxBytes(1L << 33)
            .withReservedBytes(1000);
    Table cache = db.createTable(Server.newName(), options);
    cache.put("k", "v");
    assertTrue(cache.ttl("k").orElseThrow().compareTo(minute) <= 0);
    assertEquals(options, db.tableInfo(cache.name()).options());
    assertEquals(TableOptions.DEFAULT, db.tableInfo(table.name()).options());
    Table small = db.createTable(Server.newName(), TableOptions.DEFAULT.withMaxBytes(1000));
    small.put("k", "v");
    assertThrows(NotDoneException.class, () -> small.put("l", "v".repeat(1000)));
    TableOptions wrong = TableOptions.DEFAULT.withReservedBytes(5);
    assertThrows(NotDoneException.class, () -> db.createTable(Server.newName(), wrong));
    assertThrows(
        IllegalArgumentException.class, () -> TableOptions.DEFAULT.withMaxBytes(-1));
    Table spread = db.createTable(Server.newName(), 1, TableOptions.DEFAULT.withTtl(minute));
    assertEquals(minute, db.tableInfo(spread.name()).options().ttl());
    assertThrows(
        NullPointerException.class, () -> db.createTable(Server.newName(), (TableOptions) null));
  }

  @Test
  void keysAndValuesOfEveryLengthComeBack() {
    Random random = new Random(1);
    for (int length : new int[] {0, 1, 7, 8, 32_000, 32 << 10, 40_000, 1 << 20}) {
      byte[] key = new byte[Math.min(Math.max(length, 1), Arguments.KEY_BYTES_MAX)];
      byte[] value = new byte[length];
      random.nextBytes(key);
      random.nextBytes(value);
      // A large object of both kinds may not fit into the segments of a small store.
      if (length > 100_000) {
        key = Arrays.copyOf(key, 10);
      }
      try {
        table.put(key, value);
      } catch (NotDoneException error) {
        assertEquals(1012, error.code(), "only the store's own limit may refuse " + length);
        continue;
      }
      assertArrayEquals(value, table.get(key).orElseThrow().bytes());
      assertArrayEquals(value, table.async().get(key).join().orElseThrow().bytes());
      assertTrue(table.delete(key).isPresent());
    }
  }

  @Test
  void aFailedConditionCarriesTheVersion() {
    long version = table.putIf("ada", "analyst", Condition.absent());
    var error =
        assertThrows(
            ConditionFailedException.class,
            () -> table.putIf("ada", "countess", Condition.absent()));
    assertEquals(version, error.version());
    assertEquals(1, error.code());
    long next = table.putIf("ada", "countess", Condition.versionIs(version));
    assertTrue(next > version);
    error =
        assertThrows(
            ConditionFailedException.class,
            () -> table.deleteIf("ada", Condition.versionIs(version)));
    assertEquals(next, error.version());
    error =
        assertThrows(
            ConditionFailedException.class,
            () -> table.putIf("bob", "builder", Condition.present()));
    assertEquals(0, error.version());
    assertThrows(
        ConditionFailedException.class,
        () -> table.putIf("ada", "x", Condition.versionBelow(next)));
    assertEquals(OptionalLong.of(next), table.deleteIf("ada", Condition.versionIs(next)));
  }

  @Test
  void numbersAreCountedExactly() {
    assertEquals(5, table.increment("visits", 5).number());
    assertEquals(3, table.increment("visits", -2).number());
    assertEquals(3, table.get("visits").orElseThrow().asLong());
    table.putNumber("visits", 40);
    assertEquals(42, table.increment("visits", 2).number());
    assertEquals(0.5, table.increment("share", 0.5).number());
    assertEquals(0.75, table.increment(bytes("share"), 0.25).number());
    assertEquals(0.75, table.get("share").orElseThrow().asDouble());
    table.putNumber("share", -1.5);
    assertEquals(-1.0, table.increment("share", 0.5).number());
    table.putNumber("most", Long.MAX_VALUE);
    var error = assertThrows(NotDoneException.class, () -> table.increment("most", 1));
    assertEquals(1014, error.code());
  }

  @Test
  void anIncrementReturnsTheVersionForALaterCondition() {
    Sum<Long> sum = table.increment("visits", 5);
    assertEquals(sum.version(), table.get("visits").orElseThrow().version());
    assertEquals("5, version " + sum.version(), sum.toString());
    long next = table.putNumberIf("visits", 7, Condition.versionIs(sum.version()));
    assertEquals(8, table.increment("visits", 1).number());
    var error =
        assertThrows(
            ConditionFailedException.class,
            () -> table.putNumberIf("visits", 1, Condition.versionIs(next)));
    assertTrue(error.version() > next);
    assertEquals(8, table.get("visits").orElseThrow().asLong());
    table.putNumberIf("share", 0.5, Condition.absent());
    Sum<Double> share = table.increment("share", 0.25);
    assertEquals(0.75, share.number());
    assertEquals(OptionalLong.of(share.version()), table.delete("share"));
  }

  @Test
  void onlyNumbersOfTheSameKindAreIncremented() {
    long version = table.put("ada", "analyst");
    var error = assertThrows(NotANumberException.class, () -> table.increment("ada", 1));
    assertEquals(version, error.version());
    assertEquals(1013, error.code());
    table.putNumber("visits", 1);
    assertThrows(NotANumberException.class, () -> table.increment("visits", 0.5));
    assertThrows(
        IllegalStateException.class, () -> table.get("ada").orElseThrow().asLong());
  }

  @Test
  void manyOperationsKeepTheirOrder() {
    int count = 1000;
    List<Entry> entries =
        IntStream.range(0, count).mapToObj(at -> Entry.of("key" + at, "value" + at)).toList();
    List<byte[]> keys = entries.stream().map(Entry::key).collect(Collectors.toList());
    assertEquals(count, table.putMany(entries).size());
    keys.add(500, bytes("missing"));
    List<Optional<Value>> values = table.getMany(keys);
    assertEquals(count + 1, values.size());
    assertEquals("value499", values.get(499).orElseThrow().text());
    assertEquals(Optional.empty(), values.get(500));
    assertEquals("value999", values.get(1000).orElseThrow().text());
    List<OptionalLong> deleted = table.deleteMany(keys);
    assertEquals(OptionalLong.of(values.get(499).orElseThrow().version()), deleted.get(499));
    assertEquals(OptionalLong.empty(), deleted.get(500));
    assertEquals(OptionalLong.of(values.get(501).orElseThrow().version()), deleted.get(501));
    assertEquals(List.of(), table.getMany(List.of()));
    assertEquals(List.of(), table.putMany());
    assertEquals(List.of(Optional.empty()), table.getMany("key1"));
  }

  @Test
  void aScanReturnsEachObjectOnce() {
    Set<String> expected = new HashSet<>();
    List<Entry> entries = new ArrayList<>();
    for (int at = 0; at < 3000; at++) {
      expected.add("key" + at);
      entries.add(Entry.of("key" + at, "x".repeat(50)));
    }
    table.putMany(entries);
    List<String> found = new ArrayList<>();
    try (Stream<Entry> all = table.scan()) {
      all.forEach(entry -> found.add(entry.keyText()));
    }
    assertEquals(expected.size(), found.size());
    assertEquals(expected, new HashSet<>(found));
    try (Stream<Entry> all = table.scan()) {
      assertEquals(3000, all.parallel().filter(it -> it.value().bytes().length == 50).count());
    }
    try (Stream<Entry> some = table.scan()) {
      assertEquals(10, some.limit(10).count());
    }
    assertEquals(0, db.createTable(Server.newName()).scan().count());
  }

  @Test
  void aFailureOfAScanIsLoud() {
    String name = Server.newName();
    Table other = db.createTable(name);
    other.putMany(IntStream.range(0, 3000).mapToObj(at -> Entry.of("k" + at, "x")).toList());
    try (Stream<Entry> all = other.scan()) {
      var it = all.iterator();
      it.next();
      db.dropTable(name);
      assertThrows(NoSuchTableException.class, () -> it.forEachRemaining(entry -> {}));
    }
    Stream<Entry> closed = table.scan();
    var it = closed.iterator();
    closed.close();
    assertThrows(IllegalStateException.class, it::hasNext);
  }

  @Test
  void tablesAreCreatedFoundAndDropped() {
    String name = Server.newName();
    var missing = assertThrows(NoSuchTableException.class, () -> db.table(name));
    assertEquals(1020, missing.code());
    Table made = db.createTable(name);
    assertThrows(TableExistsException.class, () -> db.createTable(name));
    assertEquals(made.id(), db.table(name).id());
    assertTrue(db.tables().stream().anyMatch(it -> it.name().equals(name)));
    TableInfo split = db.split(name, 1L << 63);
    assertEquals(2, split.tablets().size());
    assertEquals(1L << 63, split.tablets().get(1).first());
    assertEquals(-1, split.tablets().get(1).last());
    assertEquals(split, db.tableInfo(name));
    // There is no other master.
    assertThrows(NotDoneException.class, () -> db.migrate(name, 0, 77));
    db.dropTable(name);
    assertThrows(NoSuchTableException.class, () -> db.dropTable(name));
    assertInstanceOf(
        NoSuchTableException.class, assertThrows(NotDoneException.class, () -> made.get("ada")));
  }

  @Test
  void anUnreachableClusterTimesOut() {
    try (Server server = Server.start();
        Thunderhead client =
            Thunderhead.builder(server.url()).deadline(Duration.ofSeconds(30)).connect()) {
      Table there = client.createTable("t");
      there.put("ada", "analyst");
      server.pause();
      Table hasty = there.withDeadline(Duration.ofMillis(20));
      var error = assertThrows(TimedOutException.class, () -> hasty.get("ada"));
      assertTrue(error.getMessage().contains("timed out"), error.getMessage());
      var unknown = assertThrows(OutcomeUnknownException.class, () -> hasty.put("ada", "x"));
      assertEquals(8, unknown.code());
      assertThrows(TimedOutException.class, () -> hasty.scan().count());
      server.resume();
      assertTrue(there.get("ada").isPresent());
    }
  }
}
