/* Base64: the form of keys and values in the messages of the drivers. */
#ifndef BASE64_H
#define BASE64_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Returns bytes as text, which the caller frees; NULL without memory. */
static inline char *base64_encode(const void *data, size_t size) {
    const unsigned char *bytes = (const unsigned char *)data;
    char *text = (char *)malloc((size + 2) / 3 * 4 + 1);
    char *to = text;
    size_t at;
    for (at = 0; text && at < size; at += 3) {
        const size_t count = size - at < 3 ? size - at : 3;
        uint32_t group = (uint32_t)bytes[at] << 16;
        group |= count > 1 ? (uint32_t)bytes[at + 1] << 8 : 0;
        group |= count > 2 ? (uint32_t)bytes[at + 2] : 0;
        *to++ = base64_digits[group >> 18];
        *to++ = base64_digits[group >> 12 & 63];
        *to++ = count > 1 ? base64_digits[group >> 6 & 63] : '=';
        *to++ = count > 2 ? base64_digits[group & 63] : '=';
    }
    if (text) *to = 0;
    return text;
}

/* Returns the bytes of a text, which the caller frees; NULL if it is not base64. */
static inline void *base64_decode(const char *text, size_t *size) {
    const size_t length = strlen(text);
    /* One byte more, as `malloc` of nothing may return NULL. */
    unsigned char *bytes = (unsigned char *)malloc(length / 4 * 3 + 1);
    uint32_t group = 0;
    size_t digits = 0, padding = 0, at;
    *size = 0;
    for (at = 0; bytes && at < length; at++) {
        const char *digit = strchr(base64_digits, text[at]);
        padding += text[at] == '=';
        if (text[at] == '=' ? padding > 2 || at + 2 < length : !digit || padding > 0) break;
        group = group << 6 | (digit ? (uint32_t)(digit - base64_digits) : 0);
        if (++digits % 4 == 0) {
            bytes[(*size)++] = (unsigned char)(group >> 16 & 255);
            bytes[(*size)++] = (unsigned char)(group >> 8 & 255);
            bytes[(*size)++] = (unsigned char)(group & 255);
        }
    }
    if (!bytes || at < length || length % 4 != 0) {
        free(bytes);
        return NULL;
    }
    *size -= padding;
    return bytes;
}

#endif
