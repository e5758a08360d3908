package dev.thunderhead.cost;

import dev.thunderhead.AsyncTable;
import dev.thunderhead.Entry;
import dev.thunderhead.Thunderhead;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;

/** The client of Thunderhead whose calls return futures. */
final class Futures implements Cost.Rounds {
  private final Thunderhead db;
  private final AsyncTable table;
  private final byte[] value;
  private final List<Entry> entries = new ArrayList<>();

  Futures(String url, String name, byte[] value) {
    this.db = Thunderhead.connect(url);
    this.table = db.table(name).async();
    this.value = value;
    for (byte[] key : Cost.KEYS) {
      entries.add(Entry.of(key, value));
    }
    table.putMany(entries).join();
  }

  @Override
  public void round(String work, int count, int width)
      throws InterruptedException, ExecutionException {
    switch (work) {
      case "get", "get_in_flight" -> together(count, width, table::get);
      case "put", "put_in_flight" -> together(count, width, key -> table.put(key, value));
      case "get_many" -> {
        List<byte[]> keys = List.of(Cost.KEYS);
        together(count / width, 1, key -> table.getMany(keys));
      }
      case "put_many" -> together(count / width, 1, key -> table.putMany(entries));
      default -> throw new IllegalArgumentException("there is no work " + work);
    }
  }

  /**
   * Lets as many workers as {@code width} do the operations, each its share one after the other. A
   * worker is no thread: it begins an operation in the step after the one before.
   */
  private static void together(
      int count, int width, Function<byte[], CompletableFuture<?>> operation)
      throws InterruptedException, ExecutionException {
    CompletableFuture<?>[] workers = new CompletableFuture<?>[width];
    for (int at = 0; at < width; at++) {
      Worker worker = new Worker(Cost.KEYS[at], count / width, operation);
      worker.next();
      workers[at] = worker.end;
    }
    CompletableFuture.allOf(workers).get();
  }

  private static final class Worker {
    private final byte[] key;
    private final Function<byte[], CompletableFuture<?>> operation;
    private final CompletableFuture<Void> end = new CompletableFuture<>();
    private int left;

    Worker(byte[] key, int count, Function<byte[], CompletableFuture<?>> operation) {
      this.key = key;
      this.left = count;
      this.operation = operation;
    }

    void next() {
      if (left == 0) {
        end.complete(null);
        return;
      }
      left--;
      operation
          .apply(key)
          .whenComplete(
              (result, error) -> {
                if (error == null) {
                  next();
                } else {
                  end.completeExceptionally(error);
                }
              });
    }
  }

  @Override
  public void close() {
    db.close();
  }
}
