// The page that shows a rank to people: page.html, in the program. Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_OPS_PAGE_H_
#define SLOTWISE_SERVER_OPS_PAGE_H_

#include <string_view>

namespace slotwise {

// Returns page.html, in which @NONCE@ stands for the word that lets its script and style run.
std::string_view Page();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_PAGE_H_
