import dev.thunderhead.AsyncTable;
import dev.thunderhead.Entry;
import dev.thunderhead.Table;
import dev.thunderhead.TableExistsException;
import dev.thunderhead.Thunderhead;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;

/** Loads many objects, with some batches in flight at a time, and shows the progress. */
final class Load {
  private static final int OBJECTS = 100_000;
  private static final int BATCH = 500;
  private static final int IN_FLIGHT = 8;

  public static void main(String[] arguments) throws InterruptedException {
    String url = arguments.length > 0 ? arguments[0] : "thunderhead://localhost";
    try (var db = Thunderhead.connect(url)) {
      AsyncTable table = table(db, "loaded").async();
      Semaphore places = new Semaphore(IN_FLIGHT);
      AtomicInteger loaded = new AtomicInteger();
      AtomicReference<Throwable> failure = new AtomicReference<>();
      for (int first = 0; first < OBJECTS && failure.get() == null; first += BATCH) {
        places.acquire();
        table
            .putMany(batch(first))
            .whenComplete(
                (versions, error) -> {
                  if (error == null) {
                    show(loaded.addAndGet(BATCH));
                  } else {
                    failure.set(error);
                  }
                  places.release();
                });
      }
      places.acquire(IN_FLIGHT);
      if (failure.get() != null) {
        // Puts of the same values can be repeated, also if the first ones were done.
        System.out.println("start the load again: " + failure.get().getMessage());
      }
    }
  }

  private static void show(int loaded) {
    if (loaded % (OBJECTS / 10) == 0) {
      System.out.println("loaded " + loaded + " of " + OBJECTS);
    }
  }

  private static List<Entry> batch(int first) {
    return IntStream.range(first, first + BATCH)
        .mapToObj(number -> Entry.of("object-" + number, "value " + number))
        .toList();
  }

  private static Table table(Thunderhead db, String name) {
    try {
      return db.createTable(name);
    } catch (TableExistsException exists) {
      return db.table(name);
    }
  }
}
