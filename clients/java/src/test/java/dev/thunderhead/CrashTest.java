package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Increments while the store is killed: each is done once. */
@Timeout(300)
class CrashTest {
  private static final int TIMES = 2000;

  @TempDir private Path directory;

  @Test
  void noIncrementIsDoneTwiceAlthoughTheStoreIsKilled() throws Exception {
    String address = Server.freeAddress();
    Path data = directory.resolve("data");
    Server server = Server.start(data, address);
    try (Thunderhead db =
        Thunderhead.builder("thunderhead://" + address).deadline(Duration.ofMinutes(2)).connect()) {
      Table table = db.createTable("counters");
      AsyncTable async = table.async();
      CountDownLatch some = new CountDownLatch(TIMES / 4);
      List<CompletableFuture<Sum<Long>>> sums = new ArrayList<>();
      Thread waiting =
          new Thread(
              () -> {
                for (int at = 0; at < TIMES; at++) {
                  table.increment("sync", 1);
                  some.countDown();
                }
              });
      waiting.start();
      some.await();
      for (int at = 0; at < TIMES; at++) {
        sums.add(async.increment("async", 1));
      }
      server.kill();
      server = Server.start(data, address);
      waiting.join();
      sums.forEach(CompletableFuture::join);
      assertEquals(TIMES, table.get("sync").orElseThrow().asLong());
      assertEquals(TIMES, table.get("async").orElseThrow().asLong());
    } finally {
      server.close();
    }
  }
}
