package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class CloseTest {
  @Test
  void aClosedClientRefusesEverything() {
    Thunderhead db = Thunderhead.connect(Server.shared().url());
    Table table = db.createTable(Server.newName());
    AsyncTable async = table.async();
    table.putMany(Entry.of("a", "1"), Entry.of("b", "2"));
    Stream<Entry> scan = table.scan();
    AsyncScan pages = async.scan();
    db.close();
    db.close();
    db.withDeadline(Duration.ofSeconds(1)).close();
    var error = assertThrows(ClosedException.class, () -> table.get("a"));
    assertEquals(12, error.code());
    assertThrows(ClosedException.class, () -> table.put("a", "2"));
    assertThrows(ClosedException.class, () -> table.putMany(Entry.of("a", "2")));
    assertThrows(ClosedException.class, table::scan);
    assertThrows(ClosedException.class, scan::count);
    assertThrows(ClosedException.class, () -> db.table("x"));
    assertThrows(ClosedException.class, async::scan);
    List<CompletableFuture<?>> futures =
        List.of(async.get("a"), async.put("a", "2"), async.getMany("a", "b"), pages.nextPage());
    for (CompletableFuture<?> each : futures) {
      var late = assertThrows(CompletionException.class, each::join);
      assertInstanceOf(ClosedException.class, late.getCause());
    }
    scan.close();
    pages.close();
  }

  @Test
  void aClientThatWasNeverAsynchronousOpensNothingAfterItsEnd() {
    Thunderhead db = Thunderhead.connect(Server.shared().url());
    db.close();
    assertThrows(ClosedException.class, db::async);
  }

  @Test
  void closingWaitsForFutures() {
    for (int round = 0; round < 20; round++) {
      List<CompletableFuture<Sum<Long>>> sums = new ArrayList<>();
      try (Thunderhead db = Thunderhead.connect(Server.shared().url())) {
        AsyncTable table = db.createTable(Server.newName()).async();
        for (int at = 0; at < 200; at++) {
          sums.add(table.increment("n", 1));
        }
      }
      sums.forEach(sum -> assertTrue(sum.isDone() && sum.join().number() > 0));
    }
  }

  @Test
  void threadsMayCloseWhileOthersWork() throws Exception {
    for (int round = 0; round < 20; round++) {
      Thunderhead db = Thunderhead.connect(Server.shared().url());
      Table table = db.createTable(Server.newName());
      AsyncTable async = table.async();
      CountDownLatch begun = new CountDownLatch(6);
      AtomicInteger refused = new AtomicInteger();
      List<Throwable> wrong = new java.util.concurrent.CopyOnWriteArrayList<>();
      List<Thread> threads = new ArrayList<>();
      for (int at = 0; at < 6; at++) {
        boolean waits = at % 2 == 0;
        Thread thread =
            new Thread(
                () -> {
                  begun.countDown();
                  try {
                    while (true) {
                      if (waits) {
                        table.increment("n", 1);
                        table.scan().limit(1).count();
                      } else {
                        async.increment("n", 1).join();
                      }
                    }
                  } catch (ClosedException end) {
                    refused.incrementAndGet();
                  } catch (CompletionException end) {
                    if (end.getCause() instanceof ClosedException) {
                      refused.incrementAndGet();
                    } else {
                      wrong.add(end);
                    }
                  } catch (Throwable error) {
                    wrong.add(error);
                  }
                });
        thread.start();
        threads.add(thread);
      }
      begun.await();
      Thread closer = new Thread(db::close);
      closer.start();
      db.close();
      closer.join();
      for (Thread thread : threads) {
        thread.join();
      }
      assertEquals(List.of(), wrong);
      assertEquals(6, refused.get());
    }
  }

  @Test
  void aStepMayCloseTheClient() {
    Thunderhead db = Thunderhead.connect(Server.shared().url());
    AsyncTable table = db.createTable(Server.newName()).async();
    table.get("a").thenAccept(value -> db.close()).join();
    var error = assertThrows(CompletionException.class, () -> table.get("a").join());
    assertInstanceOf(ClosedException.class, error.getCause());
  }

  @Test
  void aForgottenClientIsClosed() {
    AsyncTable[] table = {
      Thunderhead.connect(Server.shared().url()).createTable(Server.newName()).async()
    };
    // A table keeps its client.
    System.gc();
    assertEquals(Optional.empty(), table[0].get("a").join());
    WeakReference<AsyncTable> gone = new WeakReference<>(table[0]);
    long before = completers();
    table[0] = null;
    while (gone.get() != null || completers() >= before) {
      System.gc();
      Thread.onSpinWait();
    }
  }

  private static long completers() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().equals("thunderhead-completer"))
        .count();
  }
}
