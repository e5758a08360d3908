package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The examples of the manual do as they say. */
@Timeout(300)
class ExamplesTest {
  /** An event after the first line of an example. */
  private interface Event {
    void happen() throws Exception;
  }

  private static List<String> run(String example, String url, Event event) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    if (Runtime.version().feature() >= 22) {
      command.add("--enable-native-access=ALL-UNNAMED");
    }
    Path file = Path.of("../../examples/java", example + ".java");
    command.addAll(
        List.of("-cp", System.getProperty("java.class.path"), file.toString(), url));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    List<String> lines = new ArrayList<>();
    try (BufferedReader output =
        new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = output.readLine(); line != null; line = output.readLine()) {
        if (lines.isEmpty()) {
          event.happen();
        }
        lines.add(line);
      }
    }
    assertEquals(0, process.waitFor(), lines::toString);
    return lines;
  }

  private static List<String> run(String example) throws Exception {
    return run(example, Server.shared().url(), () -> {});
  }

  @Test
  void helloShowsTheFirstSteps() throws Exception {
    List<String> expected =
        List.of(
            "ada is analyst",
            "another write came first",
            "bob exists: false",
            "ada is countess",
            "bob is builder",
            "eve is listener",
            "deleted: true",
            "deleted: true",
            "deleted: true");
    assertEquals(expected, run("Hello"));
  }

  @Test
  void eachJobOfTheQueueIsDoneOnce() throws Exception {
    assertEquals(List.of("200 jobs were done once each"), run("WorkQueue"));
  }

  @Test
  void loadLoadsAllObjects() throws Exception {
    List<String> lines = run("Load");
    assertTrue(lines.contains("loaded 100000 of 100000"), lines.toString());
    try (Thunderhead db = Thunderhead.connect(Server.shared().url())) {
      assertEquals(100_000, db.table("loaded").scan().count());
    }
  }

  @Test
  void counterCountsRightAlthoughTheServerIsKilled(@TempDir Path directory) throws Exception {
    String address = Server.freeAddress();
    Server[] server = {Server.start(directory, address)};
    try {
      List<String> lines =
          run(
              "Counter",
              "thunderhead://" + address,
              () -> {
                server[0].kill();
                server[0] = Server.start(directory, address);
              });
      assertEquals("counted 10000", lines.get(lines.size() - 1));
      try (Thunderhead db = Thunderhead.connect("thunderhead://" + address)) {
        assertEquals(10_000, db.table("counters").get("steps").orElseThrow().asLong());
      }
    } finally {
      server[0].close();
    }
  }
}
