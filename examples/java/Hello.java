import dev.thunderhead.Condition;
import dev.thunderhead.ConditionFailedException;
import dev.thunderhead.Entry;
import dev.thunderhead.Table;
import dev.thunderhead.TableExistsException;
import dev.thunderhead.Thunderhead;
import java.util.List;
import java.util.stream.Stream;

/** The first steps: write, read, write under a condition, read many, scan. */
final class Hello {
  public static void main(String[] arguments) {
    String url = arguments.length > 0 ? arguments[0] : "thunderhead://localhost";
    try (var db = Thunderhead.connect(url)) {
      Table users = table(db, "hello");

      long version = users.put("ada", "analyst");
      System.out.println("ada is " + users.get("ada").orElseThrow().text());

      // This write happens only if the object has not changed since it was written above.
      users.putIf("ada", "countess", Condition.versionIs(version));
      try {
        users.putIf("ada", "baroness", Condition.versionIs(version));
      } catch (ConditionFailedException changed) {
        System.out.println("another write came first");
      }

      // A missing key is not an error.
      System.out.println("bob exists: " + users.get("bob").isPresent());

      users.putMany(List.of(Entry.of("bob", "builder"), Entry.of("eve", "listener")));
      try (Stream<Entry> all = users.scan()) {
        all.map(entry -> entry.keyText() + " is " + entry.value().text())
            .sorted()
            .forEach(System.out::println);
      }

      // The same methods return futures. Operations that are in progress together travel together.
      var futures = Stream.of("ada", "bob", "eve").map(users.async()::delete).toList();
      futures.forEach(deleted -> System.out.println("deleted: " + deleted.join().isPresent()));
    }
  }

  private static Table table(Thunderhead db, String name) {
    try {
      return db.createTable(name);
    } catch (TableExistsException exists) {
      return db.table(name);
    }
  }
}
