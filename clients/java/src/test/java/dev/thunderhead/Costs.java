package dev.thunderhead;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntConsumer;

/**
 * Measures the costs of this client. A program, not a test: the class path is that of the tests,
 * and the argument a URL. Without a URL it starts a store.
 *
 * <p>"Border alone" is a request that the closed native pool refuses. "Empty" is a request without
 * operations: it passes through all of the client, and nothing is sent.
 */
final class Costs {
  private static final int ROUNDS = 15;

  private Costs() {}

  public static void main(String[] arguments) {
    String url = arguments.length > 0 ? arguments[0] : Server.shared().url();
    try (Thunderhead db = Thunderhead.connect(url)) {
      Table table = db.createTable("costs-" + System.nanoTime());
      byte[] key = "a key of some 20 bytes".getBytes(java.nio.charset.StandardCharsets.UTF_8);
      table.put(key, new byte[100]);
      AsyncTable async = table.async();
      Pool pool = db.connection.pool();
      Empty empty = new Empty();
      measure("border alone", 200_000, 1, border(url, new Call.Get(1, key)));
      measure("empty, waits", 200_000, 1, at -> pool.call(empty, db.deadline));
      measure("get, waits", 20_000, 1, at -> table.get(key));
      measure("put, waits", 20_000, 1, at -> table.put(key, key));
      List<byte[]> keys = java.util.Collections.nCopies(100, key);
      measure("getMany of 100, waits", 1_000, 100, at -> table.getMany(keys));
      measure("empty, a future", 20_000, 1, at -> db.connection.begin(empty, db.deadline).join());
      measure("get, a future", 20_000, 1, at -> async.get(key).join());
      measure(
          "get, 100 futures in flight",
          500,
          100,
          at -> {
            List<CompletableFuture<?>> all = new ArrayList<>(100);
            for (int each = 0; each < 100; each++) {
              all.add(async.get(key));
            }
            all.forEach(CompletableFuture::join);
          });
    }
  }

  /** A request to a native pool that is closed: all of this client, and nothing of the core. */
  private static IntConsumer border(String url, Call<?> call) {
    long[] handles = new long[2];
    Native.openPool(Arguments.utf8(url, "the URL"), 0, handles);
    Native.closePool(handles[0]);
    ByteBuffer buffer = Buffers.direct(1024);
    long address = Native.address(buffer);
    return at -> {
      call.put(buffer.clear(), 0, 1_000_000_000);
      Native.call(handles[0], address, buffer.position(), 1024);
      if (buffer.getShort(14) != Errors.CLOSED) {
        throw new IllegalStateException("the pool is open");
      }
    };
  }

  /** A request of no operations. */
  private static final class Empty extends Call<Boolean> {
    @Override
    int bytes() {
      return HEAD_BYTES;
    }

    @Override
    void put(ByteBuffer to, long tag, long deadline) {
      putHead(to, tag, deadline, 0, 0);
    }

    @Override
    Boolean take(ByteBuffer from, int results) {
      return results == 0;
    }
  }

  /** Prints the quickest and the median round, in microseconds for each operation. */
  private static void measure(String name, int times, int operations, IntConsumer work) {
    double[] micros = new double[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
      long began = System.nanoTime();
      for (int at = 0; at < times; at++) {
        work.accept(at);
      }
      micros[round] = (System.nanoTime() - began) / 1e3 / times / operations;
    }
    Arrays.sort(micros);
    System.out.printf("%-28s %8.2f  %8.2f%n", name, micros[0], micros[ROUNDS / 2]);
  }
}
