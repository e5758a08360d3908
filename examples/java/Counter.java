import dev.thunderhead.OutcomeUnknownException;
import dev.thunderhead.Table;
import dev.thunderhead.TableExistsException;
import dev.thunderhead.Thunderhead;
import java.time.Duration;

/**
 * Counts to 10000. Kill the server while it counts, and start it again: no step is lost, and none is
 * counted twice.
 */
final class Counter {
  private static final int STEPS = 10_000;

  public static void main(String[] arguments) {
    String url = arguments.length > 0 ? arguments[0] : "thunderhead://localhost";
    // The client repeats a step whose answer is lost, as long as the deadline allows. The server
    // recognizes the repetition.
    Duration patience = Duration.ofMinutes(5);
    try (var db = Thunderhead.builder(url).deadline(patience).connect()) {
      Table counters = table(db, "counters");
      long start = counters.increment("steps", 0).number();
      for (int step = 1; step <= STEPS; step++) {
        long sum = counters.increment("steps", 1).number();
        if (sum != start + step) {
          throw new IllegalStateException("step " + step + " gave " + sum);
        }
        if (step % 1000 == 0) {
          System.out.println("counted " + step);
        }
      }
    } catch (OutcomeUnknownException unknown) {
      // Only after five minutes without a server. Repeating the step could count it twice.
      System.out.println("read the counter before you go on: " + unknown.getMessage());
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
