package dev.thunderhead.driver;

import com.google.gson.JsonObject;
import dev.thunderhead.AsyncScan;
import dev.thunderhead.AsyncTable;
import dev.thunderhead.Entry;
import dev.thunderhead.Thunderhead;
import dev.thunderhead.ThunderheadException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Function;

/**
 * A client whose operations are futures, without a thread of its own. Each request begins in a step
 * of the one before.
 */
final class Futures implements Driver.Performer {
  private final Map<String, AsyncTable> tables = new HashMap<>();
  private Thunderhead db;

  /** The last request that came. */
  private CompletableFuture<Void> last = CompletableFuture.completedFuture(null);

  @Override
  public void push(Request request) {
    last =
        last.thenCompose(done -> perform(request))
            .handle((ok, error) -> reply(request, ok, error))
            .thenAccept(Driver::write)
            .whenComplete(
                (written, error) -> {
                  if (error != null) {
                    Driver.fail(error);
                  }
                });
  }

  @Override
  public void end() {
    last.join();
    if (db != null) {
      db.close();
    }
  }

  private static JsonObject reply(Request request, JsonObject ok, Throwable error) {
    if (error == null) {
      return Replies.done(request, ok);
    }
    return cause(error) instanceof CancellationException
        ? Replies.cancelled(request)
        : Replies.failed(request, failure(error));
  }

  /** Returns the exception of the client with which a future ended. */
  private static ThunderheadException failure(Throwable error) {
    Throwable cause = cause(error);
    if (cause instanceof ThunderheadException failure) {
      return failure;
    }
    throw new CompletionException(cause);
  }

  private static Throwable cause(Throwable error) {
    return error instanceof CompletionException ? error.getCause() : error;
  }

  private CompletableFuture<JsonObject> perform(Request request) {
    // Steps must not wait, so another thread opens and closes the client.
    return switch (request.op()) {
      case "open" -> CompletableFuture.supplyAsync(() -> open(request.url()));
      case "close" -> CompletableFuture.supplyAsync(this::close);
      default -> table(request.table()).thenCompose(table -> perform(table, request));
    };
  }

  private JsonObject open(String url) {
    db = Thunderhead.connect(url);
    return new JsonObject();
  }

  private JsonObject close() {
    db.close();
    return new JsonObject();
  }

  private CompletableFuture<AsyncTable> table(String name) {
    AsyncTable known = tables.get(name);
    if (known != null) {
      return CompletableFuture.completedFuture(known);
    }
    return CompletableFuture.supplyAsync(db::async)
        .thenCompose(async -> async.table(name))
        .whenComplete(
            (table, error) -> {
              if (error == null) {
                tables.put(name, table);
              }
            });
  }

  private static CompletableFuture<JsonObject> perform(AsyncTable table, Request request) {
    return switch (request.op()) {
      case "get" -> one(request, table.get(request.key()), Replies::found);
      case "put" ->
          one(
              request,
              table.putIf(request.key(), request.value(), request.condition()),
              Replies::version);
      case "put_number" ->
          one(
              request,
              table.putNumberIf(request.key(), request.number(), request.condition()),
              Replies::version);
      case "delete" ->
          one(request, table.deleteIf(request.key(), request.condition()), Replies::deleted);
      case "increment" ->
          one(request, table.increment(request.key(), request.by()), Replies::sum);
      case "get_many" -> {
        List<byte[]> keys = request.keys();
        yield each(keys.size(), table.getMany(keys), Replies::found);
      }
      case "put_many" -> {
        List<Entry> objects = request.objects();
        yield each(objects.size(), table.putMany(objects), Replies::version);
      }
      case "scan" -> scan(table);
      default -> throw request.unknown();
    };
  }

  /** Cancels the operation if its request says so. */
  private static <T> CompletableFuture<JsonObject> one(
      Request request, CompletableFuture<T> operation, Function<T, JsonObject> convert) {
    if (request.isCancelled()) {
      operation.cancel(true);
    }
    return operation.thenApply(convert);
  }

  private static <T> CompletableFuture<JsonObject> each(
      int count, CompletableFuture<List<T>> call, Function<T, JsonObject> convert) {
    return call.handle(
        (values, error) ->
            error == null ? Replies.each(values, convert) : Replies.each(count, failure(error)));
  }

  private static CompletableFuture<JsonObject> scan(AsyncTable table) {
    AsyncScan scan = table.scan();
    List<Entry> entries = new ArrayList<>();
    return scan.forEach(entries::add)
        .whenComplete((nothing, error) -> scan.close())
        .thenApply(nothing -> Replies.objects(entries));
  }
}
