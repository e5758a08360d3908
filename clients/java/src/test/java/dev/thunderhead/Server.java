package dev.thunderhead;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A store in a process of its own: the program that the environment variable THUNDERHEAD names. */
final class Server implements AutoCloseable {
  private static final Pattern COORDINATOR = Pattern.compile("\"coordinators\":\\[\"([^\"]+)\"");
  private static final AtomicInteger TABLES = new AtomicInteger();
  private static Server shared;

  private final Process process;
  private final String address;

  private Server(List<String> arguments) {
    List<String> command = new ArrayList<>();
    command.add(program());
    command.addAll(arguments);
    try {
      process =
          new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
      BufferedReader output =
          new BufferedReader(
              new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
      String line = output.readLine();
      Matcher matcher = COORDINATOR.matcher(line == null ? "" : line);
      if (!matcher.find()) {
        throw new IllegalStateException("the store said: " + line);
      }
      address = matcher.group(1);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static String program() {
    String program = System.getenv("THUNDERHEAD");
    if (program == null) {
      throw new IllegalStateException("set THUNDERHEAD to the path of the program thunderhead");
    }
    return program;
  }

  /** Starts a store that loses its data with its process. */
  static Server start() {
    return new Server(List.of("dev", "--ephemeral", "--json"));
  }

  /**
   * Returns an address of this machine whose port and the next one are free. The system gives ports
   * from 32768 on to connections: one of those could be taken while a store is started again.
   */
  static String freeAddress() {
    while (true) {
      int port = ThreadLocalRandom.current().nextInt(10_000, 32_000);
      try (ServerSocket first = new ServerSocket(port, 1, InetAddress.getLoopbackAddress());
          ServerSocket next =
              new ServerSocket(first.getLocalPort() + 1, 1, InetAddress.getLoopbackAddress())) {
        return "127.0.0.1:" + (next.getLocalPort() - 1);
      } catch (IOException taken) {
        // Another port may do.
      }
    }
  }

  /** Starts a store with its data in a directory, at an address. */
  static Server start(Path data, String address) {
    return new Server(
        List.of(
            "dev", "--json", "--listen", address, "--data", data.toString(), "--memory", "32MiB",
            "--segment-bytes", "1MiB"));
  }

  /** Returns the store that tests share. It ends with the virtual machine. */
  static synchronized Server shared() {
    if (shared == null) {
      shared = start();
      Runtime.getRuntime().addShutdownHook(new Thread(shared::close));
    }
    return shared;
  }

  String url() {
    return "thunderhead://" + address;
  }

  /** Returns a name that no other table has. */
  static String newName() {
    return "table-" + TABLES.incrementAndGet();
  }

  /** Makes the process stand still. The signal works only when each thread has noticed it. */
  void pause() {
    signal("-STOP");
    while (!isStopped()) {
      Thread.onSpinWait();
    }
  }

  private boolean isStopped() {
    Path threads = Path.of("/proc", String.valueOf(process.pid()), "task");
    try (Stream<Path> all = Files.list(threads)) {
      for (Path thread : (Iterable<Path>) all::iterator) {
        String state = Files.readString(thread.resolve("stat"));
        // The state comes after the name, which is in parentheses.
        if (state.charAt(state.lastIndexOf(')') + 2) != 'T') {
          return false;
        }
      }
      return true;
    } catch (IOException ended) {
      // A thread ended meanwhile.
      return false;
    }
  }

  void resume() {
    signal("-CONT");
  }

  void kill() {
    signal("-KILL");
    await();
  }

  private void signal(String signal) {
    try {
      new ProcessBuilder("kill", signal, String.valueOf(process.pid())).start().waitFor();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  private void await() {
    boolean isInterrupted = Thread.interrupted();
    try {
      process.waitFor();
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
    if (isInterrupted) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public void close() {
    if (process.isAlive()) {
      resume();
      process.destroy();
      await();
    }
  }
}
