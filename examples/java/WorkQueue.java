import dev.thunderhead.Condition;
import dev.thunderhead.ConditionFailedException;
import dev.thunderhead.Entry;
import dev.thunderhead.Table;
import dev.thunderhead.TableExistsException;
import dev.thunderhead.Thunderhead;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * A queue of jobs that workers take. A worker takes a job by a write on the condition that no other
 * worker has changed it, so each job is taken once.
 */
final class WorkQueue {
  private static final int JOBS = 200;
  private static final int WORKERS = 4;

  public static void main(String[] arguments) throws Exception {
    String url = arguments.length > 0 ? arguments[0] : "thunderhead://localhost";
    try (var db = Thunderhead.connect(url)) {
      Table jobs = table(db, "jobs");
      jobs.putMany(
          IntStream.range(0, JOBS).mapToObj(job -> Entry.of("job-" + job, "waiting")).toList());

      var executor = Executors.newFixedThreadPool(WORKERS);
      List<Callable<Integer>> workers = new ArrayList<>();
      for (int worker = 0; worker < WORKERS; worker++) {
        String name = "worker-" + worker;
        workers.add(() -> work(jobs, name));
      }
      int done = 0;
      for (var each : executor.invokeAll(workers)) {
        done += each.get();
      }
      executor.shutdown();
      System.out.println(done + " jobs were done once each");
    }
  }

  /** Does the jobs that wait, and returns how many this worker has done. */
  private static int work(Table jobs, String worker) {
    int done = 0;
    try (Stream<Entry> all = jobs.scan()) {
      for (Entry job : (Iterable<Entry>) all::iterator) {
        if (!job.value().text().equals("waiting")) {
          continue;
        }
        try {
          Condition unchanged = Condition.versionIs(job.value().version());
          long taken = jobs.putIf(job.keyText(), "taken by " + worker, unchanged);
          // The work itself belongs here. Afterwards the job is deleted, if it still is this worker's.
          jobs.deleteIf(job.keyText(), Condition.versionIs(taken));
          done++;
        } catch (ConditionFailedException late) {
          // Another worker has taken it.
        }
      }
    }
    return done;
  }

  private static Table table(Thunderhead db, String name) {
    try {
      return db.createTable(name);
    } catch (TableExistsException exists) {
      return db.table(name);
    }
  }
}
