package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(120)
class ArgumentsTest {
  private static void refuses(Class<? extends RuntimeException> type, Executable... all) {
    for (Executable each : all) {
      RuntimeException error = assertThrows(type, each);
      assertTrue(error.getMessage().length() > 10, error.getMessage());
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "", "localhost", "http://localhost", "thunderhead://", "thunderhead://a b",
        "thunderhead://:1", "thunderhead://host:0", "thunderhead://host:99999",
        "thunderhead://host:x", "thunderhead://host/path", "thunderhead://user@host",
        "thunderhead://host?deadline=soon", "thunderhead://host?deadline=0s",
        "thunderhead://host?color=red", "thunderhead://host\u0000", "thunderhead://host,",
        "thunderhead://[::1", "thunderhead://\ud800"
      })
  void aWrongUrlIsAnIllegalArgument(String url) {
    refuses(IllegalArgumentException.class, () -> Thunderhead.connect(url));
  }

  @Test
  void aHostWithoutAnAddressIsNotAnIllegalArgument() {
    var error =
        assertThrows(
            NotDoneException.class, () -> Thunderhead.connect("thunderhead://no-such.invalid"));
    assertEquals(2005, error.code());
  }

  @Test
  void aPortWithoutACoordinatorTimesOut() {
    assertThrows(
        TimedOutException.class,
        () -> Thunderhead.connect("thunderhead://127.0.0.1:1/?deadline=50ms"));
  }

  @Test
  void wrongArgumentsAreRefusedWithAText() {
    try (var db = Thunderhead.connect(Server.shared().url())) {
      Table table = db.createTable(Server.newName());
      AsyncTable async = table.async();
      byte[] key = {1};
      byte[] none = null;
      String noText = null;
      refuses(
          NullPointerException.class,
          () -> Thunderhead.connect(null),
          () -> Thunderhead.builder("x").deadline(null),
          () -> db.withDeadline(null),
          () -> db.table(null),
          () -> db.createTable(null),
          () -> db.dropTable(null),
          () -> table.get(none),
          () -> table.get(noText),
          () -> table.put(none, key),
          () -> table.put(key, none),
          () -> table.put("a", noText),
          () -> table.putIf(key, key, null),
          () -> table.delete(none),
          () -> table.deleteIf(key, null),
          () -> table.putNumberIf(key, 1, null),
          () -> table.putNumberIf(key, 1.5, null),
          () -> table.increment(none, 1),
          () -> table.increment(none, 1.5),
          () -> table.putNumber(none, 1),
          () -> table.getMany((List<byte[]>) null),
          () -> table.getMany(Collections.singletonList(null)),
          () -> table.getMany("a", null),
          () -> table.putMany((List<Entry>) null),
          () -> table.putMany(Collections.singletonList(null)),
          () -> table.deleteMany(Arrays.asList(key, null)),
          () -> Entry.of(none, key),
          () -> Entry.of("a", null),
          () -> async.get(none),
          () -> async.put(key, none),
          () -> async.putIf(key, key, null),
          () -> async.getMany(Arrays.asList(key, null)),
          () -> async.scan().forEach(null));
      byte[] longKey = new byte[Arguments.KEY_BYTES_MAX + 1];
      byte[] longValue = new byte[Arguments.VALUE_BYTES_MAX + 1];
      refuses(
          IllegalArgumentException.class,
          () -> table.get(new byte[0]),
          () -> table.get(""),
          () -> table.get(longKey),
          () -> table.put(longKey, key),
          () -> table.put(key, longValue),
          () -> table.put("a", "\udc00"),
          () -> table.get("\ud83d?"),
          () -> table.putMany(Entry.of(new byte[0], key)),
          () -> table.deleteMany(""),
          () -> async.get(""),
          () -> async.put(key, longValue),
          () -> db.createTable("a", 0),
          () -> db.createTable("a", -1),
          () -> db.createTable(""),
          () -> db.createTable("a\nb"),
          () -> db.createTable("a".repeat(256)),
          () -> db.withDeadline(Duration.ZERO),
          () -> db.withDeadline(Duration.ofMillis(-1)),
          () -> db.withDeadline(Duration.ofDays(1000)),
          () -> table.withDeadline(Duration.ofSeconds(Long.MAX_VALUE)),
          () -> async.withDeadline(Duration.ZERO));
      // Texts with question marks and with whole pairs are fine.
      table.put("what?", "a \ud83d\ude00?");
      assertEquals("a \ud83d\ude00?", table.get("what?").orElseThrow().text());
    }
  }
}
