package dev.thunderhead.cost;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;

/**
 * Measures the Java client, and Jedis: docs/testing/costs.md describes its input and output.
 *
 * <p>It reads requests from its standard input, one line of JSON each, does rounds of operations,
 * and writes the time of an operation in each round. A request that makes no sense is a fault of
 * the judge: it ends the program with status 1. This package is not that of the client, so it uses
 * what every program can use.
 */
public final class Cost {
  private static final PrintStream OUTPUT =
      new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

  /** The keys of all objects. */
  static final byte[][] KEYS = new byte[100][];

  static {
    for (int at = 0; at < KEYS.length; at++) {
      KEYS[at] = ("key" + at).getBytes(StandardCharsets.UTF_8);
    }
  }

  private Cost() {}

  /** A client that does rounds of operations. */
  interface Rounds extends AutoCloseable {
    /** Does a round. A width above 1 is the number of objects in a call, or of calls in flight. */
    void round(String work, int count, int width)
        throws InterruptedException, ExecutionException, Missing;

    @Override
    void close();
  }

  /** The program cannot measure this; the message is the reason. */
  static final class Missing extends Exception {
    private static final long serialVersionUID = 1;

    Missing(String reason) {
      super(reason);
    }
  }

  public static void main(String[] arguments) {
    Map<String, Rounds> clients = new HashMap<>();
    try {
      OUTPUT.println("{\"ready\":true,\"language\":\"java\",\"modes\":[\"sync\",\"async\"]}");
      OUTPUT.flush();
      BufferedReader input =
          new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line = input.readLine(); line != null; line = input.readLine()) {
        JsonObject request = JsonParser.parseString(line).getAsJsonObject();
        JsonObject reply = reply(clients, request);
        reply.add("id", request.get("id"));
        OUTPUT.println(reply);
        OUTPUT.flush();
      }
      clients.values().forEach(Rounds::close);
    } catch (IOException | InterruptedException | ExecutionException | RuntimeException error) {
      error.printStackTrace();
      System.exit(1);
    }
  }

  private static JsonObject reply(Map<String, Rounds> clients, JsonObject request)
      throws InterruptedException, ExecutionException {
    JsonObject reply = new JsonObject();
    String store = request.get("store").getAsString();
    String mode = request.get("mode").getAsString();
    int count = request.get("count").getAsInt();
    try {
      Rounds client = clients.get(store + mode);
      if (client == null) {
        client = start(store, mode, request);
        clients.put(store + mode, client);
      }
      JsonArray rounds = new JsonArray();
      for (int left = request.get("rounds").getAsInt(); left > 0; left--) {
        long began = System.nanoTime();
        client.round(request.get("work").getAsString(), count, request.get("width").getAsInt());
        rounds.add((System.nanoTime() - began) / (double) count);
      }
      reply.add("ns", rounds);
    } catch (Missing missing) {
      reply.addProperty("missing", missing.getMessage());
    }
    return reply;
  }

  /** Connects, and writes an object under each key. */
  private static Rounds start(String store, String mode, JsonObject request) throws Missing {
    String url = request.get("url").getAsString();
    String table = request.get("table").getAsString();
    byte[] value = new byte[request.get("value_bytes").getAsInt()];
    return switch (store + " " + mode) {
      case "thunderhead sync" -> new Waiting(url, table, value);
      case "thunderhead async" -> new Futures(url, table, value);
      case "redis sync", "redis async" -> redis(url, mode, value);
      default -> throw new IllegalArgumentException("there is no " + store + " in mode " + mode);
    };
  }

  /** Makes a client of Jedis. It is compiled, and in the class path, only if it was asked for. */
  private static Rounds redis(String url, String mode, byte[] value) throws Missing {
    try {
      return (Rounds)
          Class.forName("dev.thunderhead.cost.RedisRounds")
              .getDeclaredConstructor(String.class, String.class, byte[].class)
              .newInstance(url, mode, value);
    } catch (ClassNotFoundException | NoClassDefFoundError missing) {
      throw new Missing("Jedis is not built in; build the tests with: mvn -Pcost");
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }
}
