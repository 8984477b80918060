// An Arrival is an event in the client's completion queue.
#ifndef SLOTWISE_CLIENT_CPP_ARRIVAL_H_
#define SLOTWISE_CLIENT_CPP_ARRIVAL_H_

namespace slotwise::client {

// It owns itself, and Arrive deletes it.
class Arrival {
 public:
  virtual ~Arrival() = default;
  virtual void Arrive(bool ok) = 0;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_ARRIVAL_H_
