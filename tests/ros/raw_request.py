"""Bytes to a service that its client library would never send.

rclpy serializes requests itself, and names topics so that none is a service's. This goes one layer
down, to the middleware interface (rmw), whose C functions have been the same since ROS 2 Foxy.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_bool, c_char_p, c_int, c_size_t, c_uint64, c_void_p

_KEEP_LAST, _RELIABLE, _VOLATILE, _AUTOMATIC = 1, 1, 2, 1


class _Duration(Structure):
    _fields_ = [("sec", c_uint64), ("nsec", c_uint64)]


class _Qos(Structure):  # rmw_qos_profile_t
    _fields_ = [
        ("history", c_int),
        ("depth", c_size_t),
        ("reliability", c_int),
        ("durability", c_int),
        ("deadline", _Duration),
        ("lifespan", _Duration),
        ("liveliness", c_int),
        ("liveliness_lease_duration", _Duration),
        ("avoid_ros_namespace_conventions", c_bool),
    ]


class _PublisherOptions(Structure):  # rmw_publisher_options_t
    _fields_ = [("payload", c_void_p), ("unique_network_flow_endpoints", c_int)]


class _Bytes(Structure):  # rmw_serialized_message_t; the allocator is not used
    _fields_ = [
        ("buffer", c_char_p),
        ("length", c_size_t),
        ("capacity", c_size_t),
        ("allocator", c_void_p * 5),
    ]


class RawRequests:
    """Sends bytes as requests to `service` (full name) of the type `package/srv/Name`."""

    def __init__(self, node, service: str, type_name: str):
        package, _, name = type_name.split("/")
        get = f"rosidl_typesupport_c__get_message_type_support_handle__{package}__srv__{name}_Request"
        type_support = getattr(ctypes.CDLL(f"lib{package}__rosidl_typesupport_c.so"), get)
        type_support.restype = c_void_p
        handle_of = ctypes.CDLL("librcl.so").rcl_node_get_rmw_handle
        handle_of.restype, handle_of.argtypes = c_void_p, [c_void_p]
        self._rmw = ctypes.CDLL("librmw_implementation.so")
        self._rmw.rmw_create_publisher.restype = c_void_p
        self._rmw.rmw_create_publisher.argtypes = [
            c_void_p, c_void_p, c_char_p, POINTER(_Qos), POINTER(_PublisherOptions),
        ]  # fmt: skip
        qos = _Qos(_KEEP_LAST, 100, _RELIABLE, _VOLATILE, liveliness=_AUTOMATIC)
        qos.avoid_ros_namespace_conventions = True
        with node.handle:
            self._node = handle_of(node.handle.pointer)
        self._publisher = self._rmw.rmw_create_publisher(
            self._node, type_support(), f"rq{service}Request".encode(), qos, _PublisherOptions()
        )
        assert self._publisher, f"no publisher of requests to {service}"

    def n_services(self) -> int:
        count = c_size_t()
        count_of = self._rmw.rmw_publisher_count_matched_subscriptions
        count_of.argtypes = [c_void_p, POINTER(c_size_t)]
        assert count_of(self._publisher, count) == 0
        return count.value

    def send(self, data: bytes) -> bool:
        """Whether it went out: not if the type can't be so long."""
        publish = self._rmw.rmw_publish_serialized_message
        publish.argtypes = [c_void_p, POINTER(_Bytes), c_void_p]
        return publish(self._publisher, _Bytes(data, len(data), len(data)), None) == 0

    def close(self) -> None:
        destroy = self._rmw.rmw_destroy_publisher
        destroy.argtypes = [c_void_p, c_void_p]
        assert destroy(self._node, self._publisher) == 0
