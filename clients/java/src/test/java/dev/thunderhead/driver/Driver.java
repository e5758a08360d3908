package dev.thunderhead.driver;

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

/**
 * The driver of the Java client: docs/testing/drivers.md says what it reads and writes.
 *
 * <p>It reads requests from its standard input, one line of JSON each, and writes a reply for each.
 * A request that makes no sense is a fault of the judge: it ends the driver with status 1. This
 * package is not that of the client, so it uses what every program can use.
 */
public final class Driver {
  private static final PrintStream OUTPUT =
      new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

  private Driver() {}

  /** Performs the requests of one client, one after the other. */
  interface Performer {
    /** Begins a request, and writes the reply at its end. */
    void push(Request request);

    /** Waits for the end of all requests, and closes the client. */
    void end();
  }

  public static void main(String[] arguments) {
    try {
      write(
          JsonParser.parseString(
                  "{\"ready\":true,\"language\":\"java\",\"modes\":[\"sync\",\"async\"],"
                      + "\"cancels\":[\"async\"]}")
              .getAsJsonObject());
      run();
    } catch (IOException | RuntimeException error) {
      fail(error);
    }
  }

  private static void run() throws IOException {
    Map<Long, Performer> performers = new HashMap<>();
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      Request request = Request.parse(line);
      if (request.op().equals("open")) {
        // A client that is opened again gets another performer, which may be of another mode.
        Performer former = performers.put(request.client(), open(request.mode()));
        if (former != null) {
          former.end();
        }
      }
      Performer performer = performers.get(request.client());
      if (performer == null) {
        throw new IllegalArgumentException("the client " + request.client() + " is not open");
      }
      performer.push(request);
    }
    performers.values().forEach(Performer::end);
  }

  private static Performer open(String mode) {
    return switch (mode) {
      case "sync" -> new Waiting();
      case "async" -> new Futures();
      default -> throw new IllegalArgumentException("there is no mode " + mode);
    };
  }

  static synchronized void write(JsonObject reply) {
    OUTPUT.println(reply);
    OUTPUT.flush();
  }

  /** Ends the driver because of a fault of the judge or of the driver itself. */
  static void fail(Throwable error) {
    error.printStackTrace();
    System.exit(1);
  }
}
