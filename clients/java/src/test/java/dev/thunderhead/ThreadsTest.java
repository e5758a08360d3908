package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(240)
class ThreadsTest {
  /** Returns a factory of virtual threads. Skips the test if this Java has none. */
  private static ThreadFactory virtual() {
    try {
      Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
      Class<?> type = Class.forName("java.lang.Thread$Builder");
      return (ThreadFactory) type.getMethod("factory").invoke(builder);
    } catch (NoSuchMethodException | ClassNotFoundException error) {
      Assumptions.abort("this Java has no virtual threads");
      throw new AssertionError(error);
    } catch (IllegalAccessException | InvocationTargetException error) {
      throw new AssertionError(error);
    }
  }

  private static void count(ThreadFactory factory, int threads, int times) throws Exception {
    try (Thunderhead db = Thunderhead.connect(Server.shared().url())) {
      Table table = db.createTable(Server.newName());
      ExecutorService executor = Executors.newFixedThreadPool(threads, factory);
      List<Future<?>> all = new ArrayList<>();
      for (int thread = 0; thread < threads; thread++) {
        String own = "own" + thread;
        all.add(
            executor.submit(
                () -> {
                  for (int at = 0; at < times; at++) {
                    table.increment("sum", 1);
                    table.async().increment("sum", 1).get();
                    assertEquals(at + 1, table.increment(own, 1).number());
                    assertEquals(at + 1, table.get(own).orElseThrow().asLong());
                  }
                  return null;
                }));
      }
      for (Future<?> each : all) {
        each.get();
      }
      executor.shutdown();
      assertEquals(2L * threads * times, table.get("sum").orElseThrow().asLong());
      assertEquals(threads + 1, table.scan().count());
    }
  }

  @Test
  void threadsShareAClient() throws Exception {
    count(Thread::new, 8, 200);
  }

  @Test
  void moreThreadsThanClientsWaitForOneAnother() throws Exception {
    count(Thread::new, 100, 5);
  }

  @Test
  void virtualThreadsShareAClient() throws Exception {
    count(virtual(), 500, 5);
  }

  @Test
  void virtualThreadsScanAndFailLikeOthers() throws Exception {
    ThreadFactory factory = virtual();
    try (Thunderhead db = Thunderhead.connect(Server.shared().url())) {
      Table table = db.createTable(Server.newName());
      table.putMany(
          IntStream.range(0, 2000).mapToObj(at -> Entry.of("k" + at, "x")).toList());
      ExecutorService executor = Executors.newFixedThreadPool(2, factory);
      Future<Long> count = executor.submit(() -> table.scan().count());
      assertEquals(2000, count.get());
      Future<Throwable> error =
          executor.submit(
              () ->
                  assertThrows(
                      ConditionFailedException.class,
                      () -> table.putIf("k1", "y", Condition.absent())));
      assertInstanceOf(ConditionFailedException.class, error.get());
      executor.shutdown();
    }
  }

  /** Interrupts threads in calls that would wait for an hour, and checks how the calls end. */
  private static void interrupt(ThreadFactory factory, int threads) throws Exception {
    try (Server server = Server.start();
        Thunderhead db =
            Thunderhead.builder(server.url()).deadline(Duration.ofHours(1)).connect()) {
      Table table = db.createTable("t");
      table.put("ada", "analyst");
      table.async().get("ada").join();
      List<Consumer<Table>> calls =
          List.of(
              it -> it.get("ada"),
              it -> it.put("ada", "x"),
              it -> it.increment("n", 1),
              it -> it.getMany("ada", "bob"),
              it -> it.scan().count(),
              it -> db.createTable("u"));
      CountDownLatch begun = new CountDownLatch(threads);
      List<Throwable> errors = new java.util.concurrent.CopyOnWriteArrayList<>();
      List<Boolean> flags = new java.util.concurrent.CopyOnWriteArrayList<>();
      List<Thread> all = new ArrayList<>();
      server.pause();
      for (int at = 0; at < threads; at++) {
        Consumer<Table> call = calls.get(at % calls.size());
        Thread thread =
            factory.newThread(
                () -> {
                  begun.countDown();
                  try {
                    call.accept(table);
                  } catch (Throwable error) {
                    errors.add(error);
                  }
                  flags.add(Thread.currentThread().isInterrupted());
                });
        thread.start();
        all.add(thread);
      }
      begun.await();
      for (Thread thread : all) {
        thread.interrupt();
      }
      for (Thread thread : all) {
        thread.join();
      }
      server.resume();
      assertEquals(threads, errors.size());
      for (Throwable error : errors) {
        assertTrue(
            error instanceof CancelledException || error instanceof OutcomeUnknownException,
            error.toString());
      }
      assertEquals(java.util.Collections.nCopies(threads, true), flags);
      assertTrue(table.get("ada").isPresent());
    }
  }

  @Test
  void anInterruptEndsACallAndKeepsTheFlag() throws Exception {
    interrupt(Thread::new, 6);
  }

  @Test
  void anInterruptEndsTheWaitForAClient() throws Exception {
    interrupt(Thread::new, 80);
  }

  @Test
  void anInterruptEndsACallOfAVirtualThread() throws Exception {
    interrupt(virtual(), 200);
  }

  @Test
  void anInterruptedThreadConnectsToNothing() throws Exception {
    try (Server server = Server.start()) {
      server.pause();
      Thread.currentThread().interrupt();
      assertThrows(
          NotDoneException.class, () -> Thunderhead.connect(server.url() + "/?deadline=60m"));
      assertTrue(Thread.interrupted());
    }
  }

  @Test
  void aCallThatNeedNotWaitIsDoneByAnInterruptedThread() {
    try (Thunderhead db = Thunderhead.connect(Server.shared().url())) {
      Table table = db.createTable(Server.newName());
      Thread.currentThread().interrupt();
      try {
        for (int at = 0; at < 100; at++) {
          table.increment("n", 1);
        }
      } catch (CancelledException | OutcomeUnknownException slow) {
        // A busy machine let it wait.
      }
      assertTrue(Thread.interrupted());
    }
  }
}
