package dev.thunderhead.driver;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.thunderhead.ConditionFailedException;
import dev.thunderhead.Entry;
import dev.thunderhead.NotANumberException;
import dev.thunderhead.NotDoneException;
import dev.thunderhead.PartlyDoneException;
import dev.thunderhead.Sum;
import dev.thunderhead.ThunderheadException;
import dev.thunderhead.Value;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Function;

/** Makes replies of results and exceptions. */
final class Replies {
  private Replies() {}

  static JsonObject done(Request request, JsonObject ok) {
    return reply(request, "ok", ok);
  }

  static JsonObject failed(Request request, ThunderheadException error) {
    return reply(request, "error", failed(error));
  }

  /** Makes the reply of a future that was cancelled, which does not say whether it was done. */
  static JsonObject cancelled(Request request) {
    return reply(request, "error", error(0, "unknown", 0, "the future was cancelled"));
  }

  private static JsonObject reply(Request request, String kind, JsonObject content) {
    JsonObject reply = new JsonObject();
    reply.add("id", request.id());
    reply.add(kind, content);
    return reply;
  }

  static JsonObject failed(ThunderheadException error) {
    long version = 0;
    if (error instanceof ConditionFailedException failed) {
      version = failed.version();
    } else if (error instanceof NotANumberException failed) {
      version = failed.version();
    }
    String outcome = error instanceof NotDoneException ? "not_done" : "unknown";
    return error(error.code(), outcome, version, error.getMessage());
  }

  private static JsonObject error(int code, String outcome, long version, String text) {
    JsonObject error = new JsonObject();
    error.addProperty("code", code);
    error.addProperty("outcome", outcome);
    error.addProperty("version", Long.toUnsignedString(version));
    error.addProperty("text", text);
    return error;
  }

  static JsonObject version(long version) {
    JsonObject written = new JsonObject();
    written.addProperty("version", Long.toUnsignedString(version));
    return written;
  }

  private static JsonObject absent() {
    JsonObject absent = new JsonObject();
    absent.addProperty("absent", true);
    return absent;
  }

  static JsonObject deleted(OptionalLong version) {
    return version.isPresent() ? version(version.getAsLong()) : absent();
  }

  static JsonObject found(Optional<Value> found) {
    return found.map(Replies::value).orElseGet(Replies::absent);
  }

  private static JsonObject value(Value value) {
    JsonObject found = version(value.version());
    found.addProperty("value", text(value.bytes()));
    return found;
  }

  static JsonObject sum(Sum<Long> sum) {
    JsonObject counted = version(sum.version());
    counted.addProperty("sum", sum.number().toString());
    return counted;
  }

  static JsonObject objects(List<Entry> entries) {
    JsonArray objects = new JsonArray();
    for (Entry entry : entries) {
      JsonObject object = value(entry.value());
      object.addProperty("key", text(entry.key()));
      objects.add(object);
    }
    return list("objects", objects);
  }

  /** Makes the reply of many operations of which none failed. */
  static <T> JsonObject each(List<T> values, Function<T, JsonObject> convert) {
    JsonArray results = new JsonArray();
    values.forEach(value -> results.add(convert.apply(value)));
    return list("results", results);
  }

  /** Makes the reply of many operations of which some failed. */
  static JsonObject each(int count, ThunderheadException error) {
    JsonArray results = new JsonArray();
    for (int at = 0; at < count; at++) {
      // All of them have the same error, unless the exception names one for each.
      Optional<ThunderheadException> failure = Optional.of(error);
      if (error instanceof PartlyDoneException partly) {
        failure = partly.errors().get(at);
        if (failure.isEmpty()) {
          results.add(deleted(partly.versions().get(at)));
          continue;
        }
      }
      results.add(list("error", failed(failure.get())));
    }
    return list("results", results);
  }

  private static JsonObject list(String name, JsonElement content) {
    JsonObject list = new JsonObject();
    list.add(name, content);
    return list;
  }

  private static String text(byte[] bytes) {
    return Base64.getEncoder().encodeToString(bytes);
  }
}
