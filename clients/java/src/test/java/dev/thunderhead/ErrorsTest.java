package dev.thunderhead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Random;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@Timeout(120)
class ErrorsTest {
  @BeforeAll
  static void load() {
    Library.load();
  }

  @ParameterizedTest
  @CsvSource({
    "1, ConditionFailedException", "2, NoSuchTableException", "4, TimedOutException",
    "5, TimedOutException", "6, TimedOutException", "7, TimedOutException", "9, TimedOutException",
    "10, NotDoneException", "11, NotDoneException", "12, ClosedException", "13, TimedOutException",
    "16, TimedOutException", "19, TimedOutException", "20, CancelledException",
    "21, ClosedException", "1012, NotDoneException", "1013, NotANumberException",
    "1019, TableExistsException", "1020, NoSuchTableException", "1026, NotDoneException"
  })
  void eachCodeHasAnException(int code, String name) {
    ThunderheadException error = Errors.of(code, false, 7, "text");
    assertEquals(name, error.getClass().getSimpleName());
    assertEquals(code, error.code());
    assertInstanceOf(NotDoneException.class, error);
    assertSame(OutcomeUnknownException.class, Errors.of(code, true, 7, "text").getClass());
  }

  @Test
  void aPartlyDoneCallHasTheErrorsAndTheVersions() {
    ThunderheadException refusal = Errors.of(1012, false, 0, "text");
    var puts = new Batches.Collector<Long>(false);
    puts.add(new Call.Many.Results<>(Arrays.asList(7L, null), Arrays.asList(null, refusal)));
    puts.addFailure(1, refusal);
    var error = assertThrows(PartlyDoneException.class, puts::finish);
    OptionalLong none = OptionalLong.empty();
    assertEquals(List.of(OptionalLong.of(7), none, none), error.versions());
    assertEquals(
        List.of(Optional.empty(), Optional.of(refusal), Optional.of(refusal)), error.errors());

    var deletes = new Batches.Collector<OptionalLong>(false);
    deletes.add(
        new Call.Many.Results<>(
            Arrays.asList(OptionalLong.of(8), none, null), Arrays.asList(null, null, refusal)));
    error = assertThrows(PartlyDoneException.class, deletes::finish);
    assertEquals(List.of(OptionalLong.of(8), none, none), error.versions());
  }

  @Test
  void aPanicBecomesAnInternalException() {
    var error = assertThrows(InternalException.class, Native::panic);
    assertEquals(2004, error.code());
    assertInstanceOf(OutcomeUnknownException.class, error);
    assertTrue(error.getMessage().contains("a test asked for it"), error.getMessage());
  }

  @Test
  void noBytesCrashTheVirtualMachine() {
    long[] handles = new long[2];
    byte[] url = Server.shared().url().getBytes(java.nio.charset.StandardCharsets.UTF_8);
    assertEquals(null, Native.openPool(url, 0, handles));
    long pool = handles[0];
    ByteBuffer buffer = Buffers.direct(256);
    long address = Native.address(buffer);
    Random random = new Random(5);
    byte[] request = new byte[256];
    new Call.Get(1, new byte[] {1}).put(Buffers.of(request), 1, 1_000_000_000);
    for (int round = 0; round < 5_000; round++) {
      byte[] changed = request.clone();
      for (int at = random.nextInt(4); at >= 0; at--) {
        changed[random.nextInt(60)] = (byte) random.nextInt();
      }
      // A deadline of a second at most.
      Buffers.of(changed).putLong(8, 1 + random.nextInt(1_000_000));
      int length = random.nextInt(64);
      try {
        if (round % 2 == 0) {
          buffer.clear().put(changed);
          Native.call(pool, address, length, 256);
        } else {
          Native.callArray(pool, changed, length);
        }
      } catch (InternalException refused) {
        assertTrue(refused.getMessage().contains("malformed"), refused.getMessage());
      }
    }
    assertThrows(InternalException.class, () -> Native.call(pool, address, 257, 256));
    assertThrows(InternalException.class, () -> Native.call(pool, address, -1, 256));
    Native.closeScan(pool, 12345);
    Native.closePool(pool);
    Native.closePool(pool);
    Native.freePool(pool);
  }
}
