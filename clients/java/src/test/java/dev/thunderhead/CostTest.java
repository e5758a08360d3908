package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.thunderhead.cost.Cost;
import java.io.BufferedReader;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The cost program answers each request that docs/testing/costs.md names. */
@Timeout(120)
class CostTest {
  @TempDir private Path directory;

  @Test
  void theCostProgramMeasuresEachWork() throws Exception {
    String url = Server.shared().url();
    String table = "cost-" + System.nanoTime();
    try (Thunderhead db = Thunderhead.connect(url)) {
      db.createTable(table);
    }
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    String classes = System.getProperty("java.class.path");
    Path errors = directory.resolve("errors");
    Process process =
        new ProcessBuilder(List.of(java, "-cp", classes, Cost.class.getName()))
            .redirectError(errors.toFile())
            .start();
    try (Writer input = process.outputWriter(StandardCharsets.UTF_8);
        BufferedReader output = process.inputReader(StandardCharsets.UTF_8)) {
      assertEquals(
          "{\"ready\":true,\"language\":\"java\",\"modes\":[\"sync\",\"async\"]}",
          output.readLine());
      for (String mode : List.of("sync", "async")) {
        for (String work :
            List.of("get", "put", "get_many", "put_many", "get_in_flight", "put_in_flight")) {
          JsonObject request = new JsonObject();
          request.addProperty("id", 5);
          request.addProperty("mode", mode);
          request.addProperty("store", "thunderhead");
          request.addProperty("url", url);
          request.addProperty("table", table);
          request.addProperty("work", work);
          request.addProperty("width", work.contains("_") ? 100 : 1);
          request.addProperty("count", 200);
          request.addProperty("rounds", 2);
          request.addProperty("value_bytes", 50);
          input.write(request + "\n");
          input.flush();
          JsonObject reply = JsonParser.parseString(output.readLine()).getAsJsonObject();
          assertEquals(5, reply.get("id").getAsInt());
          boolean isMeasured = mode.equals("async") || !work.endsWith("_in_flight");
          assertEquals(isMeasured, reply.has("ns"), reply.toString());
          JsonArray rounds = isMeasured ? reply.getAsJsonArray("ns") : new JsonArray();
          rounds.forEach(round -> assertTrue(round.getAsDouble() > 0, reply.toString()));
        }
      }
    }
    assertEquals(0, process.waitFor());
    assertEquals("", Files.readString(errors));
  }
}
