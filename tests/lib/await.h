/* await.h -- waiting in tests: for a word that somebody sets, in this process or in another one, or for
 * the clock where the clock is what a test is about. Nothing here polls a word: who sets it wakes. */
#ifndef TESTS_LIB_AWAIT_H
#define TESTS_LIB_AWAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Sets the word and wakes whoever waits for it. */
void await_set(_Atomic int *word, int value);
/* Adds one to it, and wakes. */
void await_count(_Atomic int *word);
/* Until the word has the value; false if it has not by then. */
bool await_value(_Atomic int *word, int value, int64_t timeout_ms);
/* Until the word is no longer `seen`, at most so long (-1: without end). */
void await_change(_Atomic int *word, int seen, int64_t timeout_ms);
/* Until so much time has passed: a store's clock has moved on, or a moment at random. */
void await_clock_us(int64_t us);

#endif /* TESTS_LIB_AWAIT_H */
