package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Checks the output and the memory of programs. */
@Timeout(400)
class ProcessTest {
  @TempDir private Path directory;

  /** Runs a class and returns both of its outputs. */
  private String run(Class<?> program, List<String> options, String... arguments) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.add("-Djava.io.tmpdir=" + directory);
    command.addAll(options);
    if (Runtime.version().feature() >= 22) {
      command.add("--enable-native-access=ALL-UNNAMED");
    }
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), program.getName()));
    command.addAll(List.of(arguments));
    Path output = directory.resolve("output");
    Process process =
        new ProcessBuilder(command)
            .redirectErrorStream(true)
            .redirectOutput(output.toFile())
            .start();
    int status = process.waitFor();
    String text = Files.readString(output, StandardCharsets.UTF_8);
    Files.delete(output);
    assertEquals(0, status, text);
    return text;
  }

  @Test
  void nothingIsPrintedAndNoFileRemains() throws Exception {
    String text = run(Quiet.class, List.of(), Server.shared().url());
    assertEquals("", text);
    try (Stream<Path> left = Files.list(directory)) {
      assertEquals(
          List.of(), left.filter(path -> path.toString().contains("thunderhead")).toList());
    }
  }

  /** Fails in many ways. */
  static final class Quiet {
    private Quiet() {}

    public static void main(String[] arguments) {
      Library.load();
      try {
        Native.panic();
        throw new AssertionError("it does not panic");
      } catch (InternalException expected) {
        // As it should be.
      }
      try {
        Thunderhead.connect("thunderhead://127.0.0.1:1/?deadline=50ms");
        throw new AssertionError("there is no coordinator");
      } catch (TimedOutException expected) {
        // As it should be.
      }
      try (Thunderhead db = Thunderhead.connect(arguments[0])) {
        Table table = db.createTable("quiet");
        table.put("a", "b");
        table.async().increment("a", 1).handle((sum, error) -> error).join();
      }
    }
  }

  @Test
  void aMissingLibraryIsNamed() throws Exception {
    String text =
        run(Missing.class, List.of("-Dthunderhead.nativeFile=/nowhere/lib.so"), Server.shared().url());
    assertTrue(text.contains("/nowhere/lib.so"), text);
  }

  /** Prints the errors of two attempts. */
  static final class Missing {
    private Missing() {}

    public static void main(String[] arguments) {
      for (int attempt = 0; attempt < 2; attempt++) {
        try {
          Thunderhead.connect(arguments[0]);
          throw new AssertionError("the library was found");
        } catch (UnsatisfiedLinkError error) {
          System.out.println(error.getMessage());
        }
      }
    }
  }

  @Test
  void memoryIsFlat() throws Exception {
    String text =
        run(
            Soak.class,
            List.of("-Xmx48m", "-Xms48m", "-XX:+AlwaysPreTouch", "-XX:TieredStopAtLevel=1"),
            Server.shared().url());
    String[] kilobytes = text.trim().split(" ");
    long growth = Long.parseLong(kilobytes[1]) - Long.parseLong(kilobytes[0]);
    assertTrue(growth < 8 << 10, "resident memory grew by " + growth + " KiB");
  }

  /** Does many operations, also failing and cancelled ones, and prints the memory. */
  static final class Soak {
    private Soak() {}

    public static void main(String[] arguments) throws IOException {
      try (Thunderhead db = Thunderhead.connect(arguments[0])) {
        Table table = db.createTable("soak");
        for (int at = 0; at < 500; at++) {
          table.put("k" + at, "x".repeat(100));
        }
        work(arguments[0], table, 40);
        long before = resident();
        work(arguments[0], table, 200);
        System.out.println(before + " " + resident());
      }
    }

    private static void work(String url, Table table, int rounds) {
      AsyncTable async = table.async();
      byte[] large = new byte[50_000];
      for (int round = 0; round < rounds; round++) {
        for (int at = 0; at < 300; at++) {
          table.get("k" + at);
          table.put("k" + at, "y".repeat(100));
          try {
            table.putIf("k" + at, "z", Condition.absent());
            throw new AssertionError("it exists");
          } catch (ConditionFailedException expected) {
            // As it should be.
          }
        }
        table.put("large", new byte[0]);
        table.put("large".getBytes(StandardCharsets.UTF_8), large);
        table.get("large");
        table.scan().count();
        table.scan().limit(1).count();
        List<java.util.concurrent.CompletableFuture<?>> all = new ArrayList<>();
        for (int at = 0; at < 300; at++) {
          all.add(async.get("k" + at));
          all.add(async.increment("k" + at, 1).exceptionally(error -> null));
          var cancelled = async.put("k" + at, "c");
          cancelled.cancel(true);
        }
        all.forEach(java.util.concurrent.CompletableFuture::join);
        try {
          Native.panic();
        } catch (InternalException expected) {
          // As it should be.
        }
        if (round % 10 == 0) {
          try (Thunderhead other = Thunderhead.connect(url)) {
            other.table("soak").async().get("k1").join();
          }
        }
      }
    }

    private static long resident() throws IOException {
      for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
        if (line.startsWith("VmRSS:")) {
          return Long.parseLong(line.replaceAll("[^0-9]", ""));
        }
      }
      throw new IllegalStateException("there is no VmRSS");
    }
  }
}
