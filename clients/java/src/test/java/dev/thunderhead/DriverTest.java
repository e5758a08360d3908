package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.thunderhead.driver.Driver;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The driver answers each request that docs/testing/drivers.md names. */
@Timeout(120)
class DriverTest {
  @TempDir private Path directory;

  /** A driver in a process of its own. */
  private final class Asked implements AutoCloseable {
    private final Path errors = directory.resolve("errors");
    private final Process process;
    private final Writer input;
    private final BufferedReader output;

    Asked() throws IOException {
      String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
      String classes = System.getProperty("java.class.path");
      List<String> command = List.of(java, "-cp", classes, Driver.class.getName());
      process = new ProcessBuilder(command).redirectError(errors.toFile()).start();
      input = process.outputWriter(StandardCharsets.UTF_8);
      output = process.inputReader(StandardCharsets.UTF_8);
      assertEquals(
          "{\"ready\":true,\"language\":\"java\",\"modes\":[\"sync\",\"async\"],"
              + "\"cancels\":[\"async\"]}",
          output.readLine());
    }

    /** Sends a request. Apostrophes stand for quotation marks. */
    void send(String request) throws IOException {
      input.write(request.replace('\'', '"') + "\n");
      input.flush();
    }

    /** Sends a request of the client 7 and returns its reply. */
    JsonObject reply(String request) throws IOException {
      send("{'id':5,'client':7," + request + "}");
      JsonObject reply = JsonParser.parseString(output.readLine()).getAsJsonObject();
      assertEquals(5, reply.get("id").getAsInt());
      return reply;
    }

    /** Sends a request, which succeeds. */
    JsonObject ask(String request) throws IOException {
      JsonObject reply = reply(request);
      assertTrue(reply.has("ok"), reply.toString());
      return reply.getAsJsonObject("ok");
    }

    /** Sends a request, and checks the error with which it ends. */
    void refuses(String request, int code, String version) throws IOException {
      JsonObject reply = reply(request);
      assertTrue(reply.has("error"), reply.toString());
      check(reply.getAsJsonObject("error"), code, version);
    }

    private void check(JsonObject error, int code, String version) {
      assertEquals(code, error.get("code").getAsInt(), error.toString());
      assertEquals("not_done", error.get("outcome").getAsString(), error.toString());
      assertEquals(version, error.get("version").getAsString(), error.toString());
      assertTrue(error.get("text").getAsString().length() > 10, error.toString());
    }

    /** Ends the input, and checks how the driver ends. */
    void end(int status, String printed) throws Exception {
      input.close();
      assertEquals(null, output.readLine());
      assertEquals(status, process.waitFor());
      String text = Files.readString(errors);
      assertTrue(printed.isEmpty() ? text.isEmpty() : text.contains(printed), text);
    }

    @Override
    public void close() {
      process.destroyForcibly();
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"sync", "async"})
  void theDriverAnswersEachRequest(String mode) throws Exception {
    String name = Server.newName();
    try (Thunderhead db = Thunderhead.connect(Server.shared().url())) {
      db.createTable(name);
    }
    String open = "'op':'open','url':'" + Server.shared().url() + "','mode':'" + mode + "'";
    String table = "'table':'" + name + "'";
    String object = table + ",'key':'aw=='";
    try (Asked driver = new Asked()) {
      assertEquals("{}", driver.ask(open).toString());
      assertEquals("{\"absent\":true}", driver.ask("'op':'get'," + object).toString());
      String put = "'op':'put','value':'dg=='," + object;
      String version = driver.ask(put + ",'if':{'version':'0'}").get("version").getAsString();
      JsonObject found = driver.ask("'op':'get'," + object);
      assertEquals("{\"version\":\"" + version + "\",\"value\":\"dg==\"}", found.toString());
      driver.refuses(put + ",'if':'absent'", 1, version);
      driver.refuses("'op':'increment','by':'1'," + object, 1013, version);
      String delete = "'op':'delete'," + object;
      JsonObject deleted = driver.ask(delete + ",'if':{'version':'" + version + "'}");
      assertEquals(version, deleted.get("version").getAsString());
      assertEquals("{\"absent\":true}", driver.ask(delete).toString());
      driver.refuses(put + ",'if':'present'", 1, "0");
      String number = "'op':'put_number','number':'-40'," + object;
      version = driver.ask(number + ",'if':'absent'").get("version").getAsString();
      driver.refuses(number + ",'if':'absent'", 1, version);
      JsonObject sum = driver.ask("'op':'increment','by':'82'," + object);
      assertEquals("42", sum.get("sum").getAsString());
      found = driver.ask("'op':'get'," + object);
      assertEquals(sum.get("version"), found.get("version"));

      String many = "'op':'put_many'," + table + ",'objects':[['YQ==',''],['Yg==','dg==']]";
      var written = driver.ask(many).getAsJsonArray("results");
      assertEquals(2, written.size());
      String keys = "'op':'get_many'," + table + ",'keys':['Yg==','eA==']";
      var read = driver.ask(keys).getAsJsonArray("results");
      JsonObject first = read.get(0).getAsJsonObject();
      assertEquals(written.get(1).getAsJsonObject().get("version"), first.get("version"));
      assertEquals("dg==", first.get("value").getAsString());
      assertEquals("{\"absent\":true}", read.get(1).toString());
      var objects = driver.ask("'op':'scan'," + table).getAsJsonArray("objects");
      assertEquals(3, objects.size());
      assertTrue(objects.toString().contains("\"key\":\"aw==\""), objects.toString());

      driver.refuses("'op':'get','table':'none','key':'aw=='", 1020, "0");
      assertEquals("{}", driver.ask("'op':'close'").toString());
      driver.refuses("'op':'get'," + object, 12, "0");
      assertEquals("{}", driver.ask(open).toString());
      sum = driver.ask("'op':'increment','by':'1'," + object);
      assertEquals("43", sum.get("sum").getAsString());
      driver.end(0, "");
    }
  }

  @Test
  void theDriverCancels() throws Exception {
    String name = Server.newName();
    try (Thunderhead db = Thunderhead.connect(Server.shared().url())) {
      db.createTable(name);
    }
    try (Asked driver = new Asked()) {
      driver.ask("'op':'open','url':'" + Server.shared().url() + "','mode':'async'");
      String increment = "'op':'increment','by':'1','table':'" + name + "','key':'bg=='";
      int count = 50;
      int done = 0;
      for (int at = 0; at < count; at++) {
        JsonObject reply = driver.reply(increment + ",'cancel':true");
        if (reply.has("ok")) {
          done++;
        } else {
          JsonObject error = reply.getAsJsonObject("error");
          assertEquals("unknown", error.get("outcome").getAsString(), error.toString());
        }
      }
      int total = driver.ask(increment).get("sum").getAsInt() - 1;
      assertTrue(done <= total && total <= count, done + " are done, the sum is " + total);
      driver.end(0, "");
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"sync", "async"})
  void eachOfManyOperationsHasItsError(String mode) throws Exception {
    Path data = directory.resolve("data");
    try (Server server = Server.start(data, Server.freeAddress());
        Thunderhead db = Thunderhead.connect(server.url());
        Asked driver = new Asked()) {
      db.createTable("t");
      driver.ask("'op':'open','url':'" + server.url() + "','mode':'" + mode + "'");
      // The second value is too long for the segments of this store.
      String pairs = "['YQ==','dg=='],['Yg==','" + "A".repeat(400_000) + "']";
      String many = "'op':'put_many','table':'t','objects':[" + pairs + "]";
      var written = driver.ask(many).getAsJsonArray("results");
      JsonObject found = driver.ask("'op':'get','table':'t','key':'YQ=='");
      assertEquals(found.get("version"), written.get(0).getAsJsonObject().get("version"));
      driver.check(written.get(1).getAsJsonObject().getAsJsonObject("error"), 1012, "0");
      db.dropTable("t");
      for (String request : List.of(many, "'op':'get_many','table':'t','keys':['YQ==','Yg==']")) {
        var refused = driver.ask(request).getAsJsonArray("results");
        assertEquals(2, refused.size());
        driver.check(refused.get(1).getAsJsonObject().getAsJsonObject("error"), 2, "0");
      }
      driver.end(0, "");
    }
  }

  @Test
  void aRequestThatMakesNoSenseEndsTheDriver() throws Exception {
    String url = Server.shared().url();
    for (String[] each :
        new String[][] {
          {"'op':'get','table':'t','key':'aw=='", "the client 7 is not open"},
          {"'op':'open','url':'" + url + "','mode':'odd'", "there is no mode odd"},
          {"'op':'open','url':'nonsense','mode':'sync'", "IllegalArgumentException"},
          {"'op':'open','url':'nonsense','mode':'async'", "IllegalArgumentException"},
          {"'op':'open'", "has no mode"},
        }) {
      try (Asked driver = new Asked()) {
        driver.send("{'id':5,'client':7," + each[0] + "}");
        driver.end(1, each[1]);
      }
    }
    try (Asked driver = new Asked()) {
      driver.send("nonsense");
      driver.end(1, "Not a JSON Object");
    }
  }
}
