package dev.thunderhead.driver;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.thunderhead.Condition;
import dev.thunderhead.Entry;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** A request of the judge. A member that is missing is a fault of the judge. */
record Request(JsonObject json) {
  static Request parse(String line) {
    return new Request(JsonParser.parseString(line).getAsJsonObject());
  }

  private JsonElement member(String name) {
    JsonElement member = json.get(name);
    if (member == null) {
      throw new IllegalArgumentException("the request " + json + " has no " + name);
    }
    return member;
  }

  JsonElement id() {
    return member("id");
  }

  long client() {
    return member("client").getAsLong();
  }

  String op() {
    return member("op").getAsString();
  }

  String url() {
    return member("url").getAsString();
  }

  String mode() {
    return member("mode").getAsString();
  }

  String table() {
    return member("table").getAsString();
  }

  /** Whether to cancel the operation once it has begun. */
  boolean isCancelled() {
    return json.has("cancel");
  }

  byte[] key() {
    return bytes(member("key"));
  }

  byte[] value() {
    return bytes(member("value"));
  }

  long number() {
    return Long.parseLong(member("number").getAsString());
  }

  long by() {
    return Long.parseLong(member("by").getAsString());
  }

  List<byte[]> keys() {
    List<byte[]> keys = new ArrayList<>();
    member("keys").getAsJsonArray().forEach(key -> keys.add(bytes(key)));
    return keys;
  }

  List<Entry> objects() {
    List<Entry> objects = new ArrayList<>();
    for (JsonElement each : member("objects").getAsJsonArray()) {
      JsonArray pair = each.getAsJsonArray();
      objects.add(Entry.of(bytes(pair.get(0)), bytes(pair.get(1))));
    }
    return objects;
  }

  Condition condition() {
    JsonElement condition = json.get("if");
    if (condition == null) {
      return Condition.always();
    }
    if (condition.isJsonObject()) {
      String version = condition.getAsJsonObject().get("version").getAsString();
      return Condition.versionIs(Long.parseUnsignedLong(version));
    }
    return switch (condition.getAsString()) {
      case "absent" -> Condition.absent();
      case "present" -> Condition.present();
      default -> throw new IllegalArgumentException("there is no condition " + condition);
    };
  }

  IllegalArgumentException unknown() {
    return new IllegalArgumentException("there is no operation " + op());
  }

  private static byte[] bytes(JsonElement text) {
    return Base64.getDecoder().decode(text.getAsString());
  }
}
