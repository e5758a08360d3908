package dev.thunderhead;

import java.util.List;

/**
 * A table and its tablets.
 *
 * @param name the name
 * @param id the id, which never changes and is never reused
 * @param tablets the tablets: together they have all hashes of keys
 * @param options the options
 */
public record TableInfo(String name, long id, List<Tablet> tablets, TableOptions options) {
  /**
   * A range of hashes of keys, which one master serves. Hashes are unsigned numbers of 64 bits.
   *
   * @param first the first hash
   * @param last the last hash
   * @param master the id of the master
   */
  public record Tablet(long first, long last, long master) {
    @Override
    public String toString() {
      return String.format("%016x to %016x on master %d", first, last, master);
    }
  }

  /**
   * Makes a table, with a copy of the tablets.
   *
   * @param name the name
   * @param id the id
   * @param tablets the tablets
   * @param options the options
   */
  public TableInfo {
    tablets = List.copyOf(tablets);
  }
}
