package dev.thunderhead.driver;

import com.google.gson.JsonObject;
import dev.thunderhead.Entry;
import dev.thunderhead.Table;
import dev.thunderhead.Thunderhead;
import dev.thunderhead.ThunderheadException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Stream;

/** A client and a thread of its own, whose calls wait. */
final class Waiting implements Driver.Performer {
  private final ExecutorService thread = Executors.newSingleThreadExecutor();
  private final Map<String, Table> tables = new HashMap<>();
  private Thunderhead db;

  @Override
  public void push(Request request) {
    thread.execute(() -> answer(request));
  }

  @Override
  public void end() {
    thread.execute(
        () -> {
          if (db != null) {
            db.close();
          }
        });
    thread.shutdown();
    try {
      // Every operation has a deadline, so it ends.
      thread.awaitTermination(1, TimeUnit.DAYS);
    } catch (InterruptedException error) {
      Driver.fail(error);
    }
  }

  private void answer(Request request) {
    try {
      Driver.write(Replies.done(request, perform(request)));
    } catch (ThunderheadException error) {
      Driver.write(Replies.failed(request, error));
    } catch (RuntimeException | Error error) {
      Driver.fail(error);
    }
  }

  private JsonObject perform(Request request) {
    switch (request.op()) {
      case "open" -> db = Thunderhead.connect(request.url());
      case "close" -> db.close();
      default -> {
        return perform(tables.computeIfAbsent(request.table(), db::table), request);
      }
    }
    return new JsonObject();
  }

  private static JsonObject perform(Table table, Request request) {
    return switch (request.op()) {
      case "get" -> Replies.found(table.get(request.key()));
      case "put" ->
          Replies.version(table.putIf(request.key(), request.value(), request.condition()));
      case "put_number" ->
          Replies.version(table.putNumberIf(request.key(), request.number(), request.condition()));
      case "delete" -> Replies.deleted(table.deleteIf(request.key(), request.condition()));
      case "increment" -> Replies.sum(table.increment(request.key(), request.by()));
      case "get_many" -> {
        List<byte[]> keys = request.keys();
        yield each(keys.size(), () -> table.getMany(keys), Replies::found);
      }
      case "put_many" -> {
        List<Entry> objects = request.objects();
        yield each(objects.size(), () -> table.putMany(objects), Replies::version);
      }
      case "scan" -> {
        try (Stream<Entry> all = table.scan()) {
          yield Replies.objects(all.toList());
        }
      }
      default -> throw request.unknown();
    };
  }

  private static <T> JsonObject each(
      int count, Supplier<List<T>> call, Function<T, JsonObject> convert) {
    try {
      return Replies.each(call.get(), convert);
    } catch (ThunderheadException error) {
      return Replies.each(count, error);
    }
  }
}
