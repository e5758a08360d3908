/* Prints the sizes and offsets of all structs, for the comparison with abi/layout.txt. */
#include "thunderhead.h"

#include <stdio.h>

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define AT(type, member)                                                                         \
    printf("%s.%s %zu %zu\n", #type, #member, offsetof(type, member),                            \
           sizeof(((type *)0)->member))

int main(void) {
    SIZE(th_slice), AT(th_slice, data), AT(th_slice, size);
    SIZE(th_condition), AT(th_condition, kind), AT(th_condition, reserved),
        AT(th_condition, version);
    SIZE(th_pair), AT(th_pair, key), AT(th_pair, value);
    SIZE(th_error), AT(th_error, size), AT(th_error, code), AT(th_error, outcome),
        AT(th_error, version), AT(th_error, text);
    SIZE(th_options), AT(th_options, size), AT(th_options, deadline_us), AT(th_options, interrupt),
        AT(th_options, interrupt_context), AT(th_options, interrupt_every_us);
    SIZE(th_table_options), AT(th_table_options, size), AT(th_table_options, ttl_ms),
        AT(th_table_options, policy), AT(th_table_options, reserved),
        AT(th_table_options, max_bytes), AT(th_table_options, reserved_bytes);
    SIZE(th_call), AT(th_call, size), AT(th_call, deadline_us), AT(th_call, ttl_ms);
    SIZE(th_value), AT(th_value, size), AT(th_value, version), AT(th_value, value),
        AT(th_value, exists), AT(th_value, reserved);
    SIZE(th_object), AT(th_object, size), AT(th_object, version), AT(th_object, key),
        AT(th_object, value), AT(th_object, kind), AT(th_object, reserved);
    SIZE(th_op), AT(th_op, size), AT(th_op, tag), AT(th_op, table), AT(th_op, key),
        AT(th_op, value), AT(th_op, condition), AT(th_op, integer), AT(th_op, real),
        AT(th_op, deadline_us), AT(th_op, kind), AT(th_op, reserved), AT(th_op, ttl_ms),
        AT(th_op, table_options);
    SIZE(th_result), AT(th_result, size), AT(th_result, tag), AT(th_result, status),
        AT(th_result, outcome), AT(th_result, version), AT(th_result, value),
        AT(th_result, integer), AT(th_result, real), AT(th_result, table), AT(th_result, text),
        AT(th_result, exists), AT(th_result, reserved), AT(th_result, ttl_ms);
    SIZE(th_batch), AT(th_batch, size), AT(th_batch, count), AT(th_batch, failed),
        AT(th_batch, results);
    SIZE(th_tablet), AT(th_tablet, size), AT(th_tablet, first), AT(th_tablet, last),
        AT(th_tablet, master), AT(th_tablet, address);
    SIZE(th_table), AT(th_table, size), AT(th_table, id), AT(th_table, name),
        AT(th_table, tablet_count), AT(th_table, tablets), AT(th_table, ttl_ms),
        AT(th_table, policy), AT(th_table, reserved), AT(th_table, max_bytes),
        AT(th_table, reserved_bytes);
    SIZE(th_tables), AT(th_tables, size), AT(th_tables, count), AT(th_tables, tables);
    return 0;
}
